"""families.py - how fast a model of each family decodes, beside the floor.

    families.py [--genai PATH] [--config INI] [--layers N] [--profile] [NAME...]

Each is made (genai synth), measured (genai bench) and removed; one at a time, in
the folder for temporary files.  Prints the table of docs/PERFORMANCE.md.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

NAMES = ("Qwen2.5-7B gpt-oss-20b Qwen3-30B-A3B Qwen3.5-9B LFM2-1.2B LFM2-8B-A1B Gemma-3-1B "
         "Gemma-3-4B Phi-4-mini GLM-4-9B").split()


def measure(o, name, work):
    folder, rows = os.path.join(work, "model"), os.path.join(work, "rows.json")
    call = [o.genai] + (["--config", o.config] if o.config else [])
    layers = ["--layers", str(o.layers)] if o.layers else []
    subprocess.run(call + ["--quiet", "synth", name, "-o", folder, "--context", "4096",
                           "--overwrite"] + layers, check=True)
    # what it prints (--profile) is between the rows of the table
    subprocess.run(call + ["--quiet", "bench", folder, "--prompt-tokens", o.prompts,
                           "--new-tokens", str(o.new_tokens), "--repeat", str(o.repeat),
                           "--json", rows] + (["--profile"] if o.profile else []),
                   check=True, stdout=sys.stderr)
    with open(rows, encoding="utf-8") as f:
        return json.load(f)


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--genai", default="genai")
    a.add_argument("--config")
    a.add_argument("--layers", type=int, default=0, help="fewer than the models have")
    a.add_argument("--prompts", default="16,512")
    a.add_argument("--new-tokens", type=int, default=128)
    a.add_argument("--repeat", type=int, default=2)
    a.add_argument("--profile", action="store_true")
    a.add_argument("names", nargs="*", default=NAMES)
    o = a.parse_args()
    depths = o.prompts.split(",")
    print("| model | MB a token |" +
          "".join(f" decode, {d} deep | of the floor |" for d in depths) +
          f" prompt of {depths[-1]} |\n|---|---|" + "---|---|" * len(depths) + "---|", flush=True)
    for name in o.names:
        with tempfile.TemporaryDirectory() as work:
            got = measure(o, name, work)
        line = f"| {name} | {got['rows'][0]['bytes_per_token'] / 1e6:,.0f} |"
        for r in got["rows"]:
            d = r["decode_tok_s"]
            line += (f" {d['median']:,.1f} ({d['min']:,.1f}-{d['max']:,.1f}) |"
                     f" {100 * r['share_of_floor']:.1f} % |")
        print(f"{line} {got['rows'][-1]['prefill_tok_s']['median']:,.0f} |", flush=True)


main()
