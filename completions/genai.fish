# fish completion for genai
complete -c genai -f
complete -c genai -n __fish_use_subcommand -a generate -d 'continue a prompt'
complete -c genai -n __fish_use_subcommand -a chat -d 'hold a conversation'
complete -c genai -n __fish_use_subcommand -a logits -d 'the logits of every position'
complete -c genai -n __fish_use_subcommand -a score -d 'perplexity of a text'
complete -c genai -n __fish_use_subcommand -a tokenize -d 'text to token ids'
complete -c genai -n __fish_use_subcommand -a detokenize -d 'token ids to text'
complete -c genai -n __fish_use_subcommand -a template -d 'render a chat template'
complete -c genai -n __fish_use_subcommand -a run -d 'run a single graph'
complete -c genai -n __fish_use_subcommand -a inspect -d 'what a model needs'
complete -c genai -n __fish_use_subcommand -a bench -d 'measure speed'
complete -c genai -n __fish_use_subcommand -a import -d 'a GGUF file to a model folder'
complete -c genai -n __fish_use_subcommand -a synth -d 'a model of a real size with random weights'
complete -c genai -n __fish_use_subcommand -a modules -d 'the modules of this configuration'
complete -c genai -n __fish_use_subcommand -a config -d 'every effective key and its origin'
complete -c genai -n __fish_use_subcommand -a help -d 'how to use a command'
complete -c genai -l config
complete -c genai -l set
complete -c genai -l quiet
complete -c genai -l verbose
complete -c genai -l no-progress
complete -c genai -l help
complete -c genai -n '__fish_seen_subcommand_from generate' -l prompt -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l prompt-file -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l ids -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l chat -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l system -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l max-new-tokens -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l ignore-eos -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l stop -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l echo -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l json -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l greedy -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l temperature -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l top-k -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l top-p -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l min-p -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l repetition-penalty -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l presence-penalty -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l frequency-penalty -F
complete -c genai -n '__fish_seen_subcommand_from generate' -l seed -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l system -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l max-new-tokens -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l greedy -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l temperature -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l top-k -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l top-p -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l min-p -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l repetition-penalty -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l presence-penalty -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l frequency-penalty -F
complete -c genai -n '__fish_seen_subcommand_from chat' -l seed -F
complete -c genai -n '__fish_seen_subcommand_from logits' -l ids -F
complete -c genai -n '__fish_seen_subcommand_from logits' -l chunks -F
complete -c genai -n '__fish_seen_subcommand_from logits' -s o -F
complete -c genai -n '__fish_seen_subcommand_from logits' -l top -F
complete -c genai -n '__fish_seen_subcommand_from score' -l file -F
complete -c genai -n '__fish_seen_subcommand_from score' -l window -F
complete -c genai -n '__fish_seen_subcommand_from score' -l stride -F
complete -c genai -n '__fish_seen_subcommand_from score' -l json -F
complete -c genai -n '__fish_seen_subcommand_from tokenize' -l text -F
complete -c genai -n '__fish_seen_subcommand_from tokenize' -l file -F
complete -c genai -n '__fish_seen_subcommand_from tokenize' -l no-special -F
complete -c genai -n '__fish_seen_subcommand_from tokenize' -l specials-as-text -F
complete -c genai -n '__fish_seen_subcommand_from tokenize' -l jsonl -F
complete -c genai -n '__fish_seen_subcommand_from detokenize' -l ids -F
complete -c genai -n '__fish_seen_subcommand_from detokenize' -l keep-special -F
complete -c genai -n '__fish_seen_subcommand_from detokenize' -l stream -F
complete -c genai -n '__fish_seen_subcommand_from detokenize' -l jsonl -F
complete -c genai -n '__fish_seen_subcommand_from template' -l messages -F
complete -c genai -n '__fish_seen_subcommand_from template' -l tools -F
complete -c genai -n '__fish_seen_subcommand_from template' -l no-generation-prompt -F
complete -c genai -n '__fish_seen_subcommand_from template' -l continue -F
complete -c genai -n '__fish_seen_subcommand_from template' -l var -F
complete -c genai -n '__fish_seen_subcommand_from template' -l now -F
complete -c genai -n '__fish_seen_subcommand_from template' -l jsonl -F
complete -c genai -n '__fish_seen_subcommand_from run' -l input -F
complete -c genai -n '__fish_seen_subcommand_from run' -l output-dir -F
complete -c genai -n '__fish_seen_subcommand_from run' -l node-tests -F
complete -c genai -n '__fish_seen_subcommand_from run' -l rtol -F
complete -c genai -n '__fish_seen_subcommand_from run' -l atol -F
complete -c genai -n '__fish_seen_subcommand_from run' -l list -F
complete -c genai -n '__fish_seen_subcommand_from inspect' -l device-limit -F
complete -c genai -n '__fish_seen_subcommand_from inspect' -l weight-budget -F
complete -c genai -n '__fish_seen_subcommand_from inspect' -l json -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l prompt-tokens -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l new-tokens -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l depth -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l repeat -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l weight-budget -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l device-limit -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l matrix -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l json -F
complete -c genai -n '__fish_seen_subcommand_from bench' -l plot -F
complete -c genai -n '__fish_seen_subcommand_from import' -s o -F
complete -c genai -n '__fish_seen_subcommand_from import' -l overwrite -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l list -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l json -F
complete -c genai -n '__fish_seen_subcommand_from synth' -s o -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l seed -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l bits -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l block -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l layers -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l dtype -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l context -F
complete -c genai -n '__fish_seen_subcommand_from synth' -l overwrite -F
complete -c genai -n '__fish_seen_subcommand_from modules' -l json -F
complete -c genai -n '__fish_seen_subcommand_from config' -l json -F
