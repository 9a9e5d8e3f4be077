#!/bin/sh
# check.sh - is what was installed enough for a third party?  Follows
# WRITING-A-MODULE.md as it is installed, and builds the examples and an
# application, with pkg-config alone.  Run by make installcheck.
# Environment: PKG_CONFIG_PATH, top_srcdir, docdir, CC, CFLAGS, bindir.
set -e
top_srcdir=$(cd "$top_srcdir" && pwd)
here=$top_srcdir/tests/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
PATH=$bindir:$PATH
HOME=$work
# a device that asks for an absurd size is refused, as it would be without
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1
export PATH HOME ASAN_OPTIONS
unset XDG_CONFIG_HOME

failed()
{
	echo "installcheck: $*" >&2
	[ ! -f out ] || sed 's/^/  /' out >&2
	exit 1
}

[ "$(pkg-config --variable=abi_major genai)" = 1 ]
moduledir=$(pkg-config --variable=moduledir genai)
ls "$moduledir" | grep -q '\.so$'
! ls "$moduledir" | grep -v '\.so$' || failed "$moduledir has more than modules"

# The libraries below genai are its own affair: none has to be installed for
# development, none adds flags.
[ "$(pkg-config --cflags genai | wc -w)" -le 1 ] &&
	[ -z "$(pkg-config --print-requires-private genai)" ] ||
	failed "pkg-config wants more than the headers of genai"
flags="$CFLAGS $(pkg-config --cflags genai)"
$CC $flags -shared -fPIC -fvisibility=hidden -o hello_module.so \
	"$here/hello_module.c"
libdir=$(pkg-config --variable=libdir genai)
$CC $flags -o hello_app "$here/hello_app.c" $(pkg-config --libs genai) \
	-Wl,-rpath,"$libdir"
./hello_app | grep -q '^/nonexistent.ini: cannot open'

# The module by path; the sections of the built-in ones by name.
printf '[module hello_module]\npath = %s/hello_module.so\n' "$work" >genai.ini
genai-conform --config genai.ini --module "$work/hello_module.so" --strict \
	--torture
./hello_app genai.ini

# The page: its first C block is a module, the shell block below it builds that.
page=$docdir/WRITING-A-MODULE.md
mkdir mine
awk '/^```c$/ { on = 1; next } /^```$/ && on { exit } on' "$page" >mine/mine.c
awk '/^```sh$/ { on = 1; block = ""; next }
/^```$/ && on { on = 0; if (block ~ /-o mine.so/) { printf "%s", block; exit } }
on { block = block $0 "\n" }' "$page" >mine/build
(cd mine && PATH=$work/cc:$PATH && mkdir "$work/cc" &&
	printf '#!/bin/sh\nexec %s %s -Werror "$@"\n' "$CC" "$CFLAGS" \
		>"$work/cc/cc" &&
	chmod +x "$work/cc/cc" && sh ./build) >out 2>&1 &&
	failed "a module without functions conforms"
grep -q '^FAIL pager/caps mine .*required slot caps is missing' out ||
	failed "WRITING-A-MODULE.md, 1: no word of the missing function"
! grep -q 'FAIL handshake' out || failed "WRITING-A-MODULE.md, 1: a handshake"
awk '/^```$/ { on = !on; next } on && /required slot/' "$page" |
	sed 's/^ *//' | while read -r line; do
	grep -qF "$line" out || failed "it does not say: $line"
done

# The applications among the examples, as they are installed.
printf '[module cpu_ref]\n[module pager_sync]\n' >run.ini
cp -R "$docdir/examples/app" "$work/app"
chmod -R u+w "$work/app"
(cd "$work/app" && cp ../run.ini genai.ini && make check CC="$CC" \
	CFLAGS="$CFLAGS -Werror" \
	MODEL="$top_srcdir/tests/data/models/llama-cpu-fp32") >out 2>&1 ||
	failed "examples/app: make check"

# The examples, as they are installed: they build, conform, survive a lack of
# memory, and are opened by name.
[ -f "$(pkg-config --variable=exec_common genai)/exec.h" ] ||
	failed "pkg-config does not find exec_common"
for example in pager reader tracer device; do
	case $example in
	reader) module=reader_pager ;;
	tracer) module=tracer ;;
	*) module=small_$example ;;
	esac
	cp -R "$docdir/examples/$example" "$work/$example"
	chmod -R u+w "$work/$example"
	(cd "$work/$example" &&
		make check CC="$CC" CFLAGS="$CFLAGS -Werror") >out 2>&1 ||
		failed "examples/$example: make check"
	grep '^[0-9]* passed' out
	genai-conform --torture --module "$work/$example/$module.so" \
		>out 2>&1 || failed "examples/$example: torture"
	sed "s|/put/the/absolute/path/here|$work/$example|" \
		"$work/$example/genai.ini" >"$example.ini"
	./hello_app "$example.ini" | grep -qx open
	genai --config "$example.ini" modules | grep -q "^$module "
done
echo "installcheck: passed"
