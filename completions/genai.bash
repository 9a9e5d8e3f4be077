# bash completion for genai
_genai()
{
	local cur=${COMP_WORDS[COMP_CWORD]} cmd= w
	for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case $w in
		-*) ;;
		generate|chat|logits|score|tokenize|detokenize|template|run|inspect|bench|import|synth|modules|config|help)
			cmd=$w
			break ;;
		esac
	done
	local common="--config --set --quiet --verbose --no-progress --help" opts=
	case $cmd in
	"") opts="generate chat logits score tokenize detokenize template run inspect bench import synth modules config help --version" ;;
	help) opts="generate chat logits score tokenize detokenize template run inspect bench import synth modules config" ;;
	generate) opts="--prompt --prompt-file --ids --chat --system --max-new-tokens --ignore-eos --stop --echo --json --greedy --temperature --top-k --top-p --min-p --repetition-penalty --presence-penalty --frequency-penalty --seed" ;;
	chat) opts="--system --max-new-tokens --greedy --temperature --top-k --top-p --min-p --repetition-penalty --presence-penalty --frequency-penalty --seed" ;;
	logits) opts="--ids --chunks -o --top" ;;
	score) opts="--file --window --stride --json" ;;
	tokenize) opts="--text --file --no-special --specials-as-text --jsonl" ;;
	detokenize) opts="--ids --keep-special --stream --jsonl" ;;
	template) opts="--messages --tools --no-generation-prompt --continue --var --now --jsonl" ;;
	run) opts="--input --output-dir --node-tests --rtol --atol --list" ;;
	inspect) opts="--device-limit --weight-budget --json" ;;
	bench) opts="--prompt-tokens --new-tokens --depth --repeat --weight-budget --device-limit --matrix --json --plot" ;;
	import) opts="-o --overwrite" ;;
	synth) opts="--list --json -o --seed --bits --block --layers --dtype --context --overwrite" ;;
	modules) opts="--json" ;;
	config) opts="--json" ;;
	esac
	COMPREPLY=($(compgen -W "$opts $common" -- "$cur"))
}
complete -o default -o bashdefault -F _genai genai
