# bash completion for genai: the program is asked what it knows.
_genai()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
	local program=${COMP_WORDS[0]} cmd= w words
	local commands="$("$program" help --words 2>/dev/null) help"
	if [ "$prev" = --set ]; then
		words=$("$program" help --words keys 2>/dev/null)
		compopt -o nospace 2>/dev/null
	else
		for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
			case " ${commands//$'\n'/ } " in
			*" $w "*)
				cmd=$w
				break ;;
			esac
		done
		case $cmd in
		"" | help) words=$commands ;;
		*) words=$("$program" help --words "$cmd" 2>/dev/null) ;;
		esac
		[ -n "$cmd" ] || words="$words --version"
		words="$words --config --set --quiet --verbose --no-progress --help"
	fi
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -o bashdefault -F _genai genai
