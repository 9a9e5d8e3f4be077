# fish completion for genai: the program is asked what it knows.
function __genai_words
	set -l done (commandline -opc)
	set -l commands ($done[1] help --words 2>/dev/null) help
	if test "$done[-1]" = --set
		$done[1] help --words keys 2>/dev/null
		return
	end
	for w in $done[2..-1]
		if contains -- $w $commands
			if test $w = help
				string join \n $commands
			else
				$done[1] help --words $w 2>/dev/null
			end
			return
		end
	end
	string join \n $commands
end
complete -c genai -a '(__genai_words)'
complete -c genai -l config -r
complete -c genai -l set
complete -c genai -l quiet
complete -c genai -l verbose
complete -c genai -l no-progress
complete -c genai -l help
complete -c genai -l version
