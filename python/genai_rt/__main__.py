"""python -m genai_rt: the command line, docs/CLI.md."""

import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "genai")
if not os.path.exists(PROGRAM):
    PROGRAM = "genai"  # the system's


def main() -> None:
    try:
        os.execvp(PROGRAM, ["genai"] + sys.argv[1:])
    except OSError as e:
        sys.exit("genai_rt: %s: %s" % (PROGRAM, e.strerror))


if __name__ == "__main__":
    main()
