#!/bin/sh
# check.sh - is what was installed enough for a third party?  Builds a module
# and an application with pkg-config alone.  Run by make installcheck.
# Environment: PKG_CONFIG_PATH, top_srcdir, CC, CFLAGS, bindir.
set -e
top_srcdir=$(cd "$top_srcdir" && pwd)
here=$top_srcdir/tests/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

[ "$(pkg-config --variable=abi_major genai)" = 1 ]
moduledir=$(pkg-config --variable=moduledir genai)
ls "$moduledir" | grep -q '\.so$'
if ls "$moduledir" | grep -v '\.so$'; then
	echo "installcheck: $moduledir has more than modules" >&2
	exit 1
fi

flags="$CFLAGS $(pkg-config --cflags genai)"
$CC $flags -shared -fPIC -fvisibility=hidden -o hello_module.so \
	"$here/hello_module.c"
libdir=$(pkg-config --variable=libdir genai)
$CC $flags -o hello_app "$here/hello_app.c" $(pkg-config --libs genai) \
	-Wl,-rpath,"$libdir"
./hello_app | grep -q '^/nonexistent.ini: cannot open'

# The module by path; the sections of the built-in ones by name.
printf '[module hello_module]\npath = %s/hello_module.so\n' "$work" >genai.ini
if [ -x "$bindir/genai-conform" ]; then
	"$bindir/genai-conform" --config genai.ini --module "$work/hello_module.so"
fi
./hello_app genai.ini

# The examples: built by their own Makefiles, conforming, and opened by name.
for example in pager device; do
	cp -R "$top_srcdir/examples/$example" "$work/$example"
	chmod -R u+w "$work/$example"
	(cd "$work/$example" &&
		make -s CC="$CC" CFLAGS="$CFLAGS" "small_$example.so")
	[ ! -x "$bindir/genai-conform" ] ||
		HOME=/nonexistent "$bindir/genai-conform" --strict \
			--module "$work/$example/small_$example.so"
	sed "s|/put/the/absolute/path/here|$work/$example|" \
		"$work/$example/genai.ini" >"$example.ini"
	./hello_app "$example.ini" | grep -qx open
done
echo "installcheck: passed"
