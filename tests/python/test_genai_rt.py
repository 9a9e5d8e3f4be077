"""The Python package, against the command line and against bad use.
Environment: GENAI_MODEL, a folder; GENAI, the command; the package is found."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import numpy as np

import genai_rt
import genai_rt.og as og

MODEL = os.environ["GENAI_MODEL"]
IDS = [1, 17, 42]
LIST = ",".join(map(str, IDS))


def command(*args, check=True):
    """What python -m genai_rt says."""
    r = subprocess.run([sys.executable, "-m", "genai_rt"] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if check and r.returncode:
        raise AssertionError(r.stderr.decode())
    return r.stdout.decode()


def open_model(**keys):
    keys.setdefault("executor", "cpu_ref:eager")
    return genai_rt.Model(MODEL, **keys)


class AsTheCommand(unittest.TestCase):
    def test_greedy(self):
        want = json.loads(command("generate", MODEL, "--ids", LIST, "-n", "40", "--greedy", "--ignore-eos",
                                  "--json"))
        with open_model() as m:
            got = m.generate(IDS, max_new_tokens=40, greedy=True, ignore_eos=True)
            self.assertEqual(got.ids, want["ids"])
            self.assertEqual(str(got), want["text"])
            self.assertEqual(got.finish_reason, want["finish_reason"])
            again = m.stream(IDS, max_new_tokens=40, greedy=True, ignore_eos=True)
            self.assertEqual("".join(again), want["text"])

    def test_sampled(self):
        want = json.loads(command("generate", MODEL, "--ids", LIST, "-n", "40", "--seed", "7",
                                  "--temperature", "1.5", "--top-k", "30", "--repetition-penalty", "1.1",
                                  "--ignore-eos", "--json"))
        with open_model() as m:
            got = m.generate(IDS, max_new_tokens=40, seed=7, temperature=1.5, top_k=30, repetition_penalty=1.1,
                             ignore_eos=True)
            self.assertEqual(got.ids, want["ids"])

    def test_chat_and_stop(self):
        text = "a <|end|> b"
        want = json.loads(command("generate", MODEL, "--chat", "--prompt", text, "-n", "30", "--greedy", "--json"))
        with open_model() as m:
            got = m.generate(text, chat=True, max_new_tokens=30, greedy=True)
            self.assertEqual(got.prompt_ids, want["prompt_ids"])
            self.assertEqual(got.ids, want["ids"])
            stop = str(got)[3:6]
            cut = m.generate(text, chat=True, max_new_tokens=30, greedy=True, stop=[stop])
            self.assertEqual((str(cut), cut.finish_reason), (str(got)[: str(got).index(stop)], "stop"))

    def test_tokenizer(self):
        tok = genai_rt.Tokenizer(MODEL)
        for text in ("", "plain", "Grüße, 世界 <|end|>", "a\0b"):
            self.assertEqual(tok.text(tok.ids(text, special=False)).replace("<|end|>", ""),
                             text.replace("<|end|>", ""))
            stream = tok.stream(keep_special=True)
            pieces = [stream.decode(i) for i in tok.ids(text)] + [stream.flush()]
            self.assertEqual("".join(pieces), tok.text(tok.ids(text), keep_special=True))
        want = json.loads(command("tokenize", MODEL, "--text", "some text"))
        self.assertEqual(tok.ids("some text"), want)
        self.assertTrue(tok.is_special(tok.token_id("<|end|>")))
        self.assertIsNone(tok.token_id("no such token"))
        self.assertEqual(len(tok), 512)

    def test_logits(self):
        with open_model(all_logits=True) as every, open_model() as last:
            a = every.logits(IDS, all=True)
            self.assertEqual((a.shape, a.dtype), ((len(IDS), 512), np.float32))
            for n in range(1, len(IDS) + 1):
                np.testing.assert_array_equal(a[n - 1], last.logits(IDS[:n]))
            many = [1 + i % 500 for i in range(300)]
            a = every.logits(many, all=True)
            self.assertEqual(a.shape, (300, 512))
            np.testing.assert_array_equal(a[-1], last.logits(many))
            np.testing.assert_array_equal(a[99], last.logits(many[:100]))
            with self.assertRaises(genai_rt.StateError):
                last.logits(IDS, all=True)

    def test_modules_say_the_same(self):
        want = None
        for keys in ({}, {"executor": "cpu_ref:captured"}, {"pager": "pager_async", "weight_budget": "200KiB"},
                     {"sets": {"cpu_ref.schedule": "late"}}):
            with open_model(**keys) as m:
                got = m.generate(IDS, max_new_tokens=20, greedy=True, ignore_eos=True).ids
                want = want or got
                self.assertEqual(got, want)
                s = m.statistics()
                if "weight_budget" in keys:
                    self.assertEqual((s.pager, s.weight_budget_bytes), ("pager_async", 200 * 1024))

    def test_gguf(self):
        gguf = os.environ["GENAI_GGUF"]
        with tempfile.TemporaryDirectory() as d:
            want = json.loads(command("generate", gguf, "--ids", "1,2", "-n", "4", "--greedy", "--ignore-eos", "--json"))
            with genai_rt.Model(gguf) as m:
                self.assertEqual(m.generate([1, 2], max_new_tokens=4, greedy=True, ignore_eos=True).ids, want["ids"])
                self.assertTrue(m.tokenizer.ids("a"))
            cut = os.path.join(d, "cut.gguf")
            with open(gguf, "rb") as f, open(cut, "wb") as g:
                g.write(f.read()[:1000])
            with self.assertRaisesRegex(genai_rt.FormatError, "cut.gguf"):
                genai_rt.Model(cut)

    def test_command_line(self):
        self.assertIn(genai_rt.__version__, command("--version"))
        r = subprocess.run([sys.executable, "-m", "genai_rt", "generate"], stderr=subprocess.PIPE)
        self.assertEqual(r.returncode, 2)


class Vocabulary(unittest.TestCase):
    """Loops as programs for onnxruntime-genai have them."""

    def setUp(self):
        self.model = og.Model(MODEL)
        self.tokenizer = og.Tokenizer(self.model)
        self.addCleanup(self.model.close)

    def generator(self, **options):
        params = og.GeneratorParams(self.model)
        params.set_search_options(**options)
        return og.Generator(self.model, params)

    def test_stream(self):
        want = self.model.generate(IDS, max_new_tokens=25, greedy=True).ids
        g = self.generator(max_length=len(IDS) + 25, do_sample=False)
        g.append_tokens(np.array(IDS, dtype=np.int32))
        stream, got, text = self.tokenizer.create_stream(), [], ""
        while not g.is_done():
            g.generate_next_token()
            token = g.get_next_tokens()[0]
            got.append(int(token))
            text += stream.decode(token)
        self.assertEqual(got, want)
        self.assertEqual(g.get_sequence(0).tolist(), IDS + want)
        self.assertEqual(g.token_count(), len(IDS) + len(want))
        self.assertEqual(text + stream.flush(), self.tokenizer.decode(np.array(want)))
        with self.assertRaises(genai_rt.StateError):
            g.generate_next_token()

    def test_chat_turns(self):
        messages = json.dumps([{"role": "user", "content": "one"}])
        prompt = self.tokenizer.apply_chat_template(messages=messages, add_generation_prompt=True)
        g = self.generator(max_length=200, do_sample=True, top_k=20, temperature=0.8, random_seed=5)
        g.append_tokens(self.tokenizer.encode(prompt))
        for _ in range(5):
            g.generate_next_token()
        before = g.token_count()
        g.append_tokens(self.tokenizer.encode("two"))
        self.assertGreater(g.token_count(), before)
        g.generate_next_token()

    def test_rewind(self):
        g = self.generator(max_length=60)
        g.append_tokens(IDS)
        first = []
        for _ in range(10):
            g.generate_next_token()
            first.append(int(g.get_next_tokens()[0]))
        for n in (len(IDS), len(IDS) + 4, len(IDS) + 9):
            g.rewind_to(n)
            self.assertEqual(g.token_count(), n)
            for i in range(n - len(IDS), 10):
                g.generate_next_token()
                self.assertEqual(int(g.get_next_tokens()[0]), first[i])
        g.rewind_to(0)
        g.append_tokens(IDS[:2])
        g.generate_next_token()
        with self.assertRaises(genai_rt.InvalidError):
            g.rewind_to(99)

    def test_logits(self):
        g, plain = self.generator(max_length=60), self.generator(max_length=60)
        g.append_tokens(IDS)
        plain.append_tokens(IDS)
        for _ in range(8):
            a = g.get_logits()
            self.assertEqual((a.shape, a.dtype), ((1, 1, 512), np.float32))
            np.testing.assert_array_equal(a[0, 0], self.model.logits(g.get_sequence(0)))
            g.generate_next_token()
            plain.generate_next_token()
            self.assertEqual(g.get_next_tokens()[0], a[0, 0].argmax())
            self.assertEqual(g.get_next_tokens()[0], plain.get_next_tokens()[0])
        forced = np.full((1, 1, 512), -1.0)
        forced[0, 0, 77] = 3
        g.set_logits(forced)
        g.generate_next_token()
        self.assertEqual(g.get_next_tokens()[0], 77)
        plain.append_tokens([77])
        g.generate_next_token()
        plain.generate_next_token()
        self.assertEqual(g.get_sequence(0)[:-2].tolist(), plain.get_sequence(0)[:-2].tolist())

    def test_batch(self):
        prompts = ["some text", "a", "and something longer"]
        rows = self.tokenizer.encode_batch(prompts)
        self.assertEqual(rows.shape[0], 3)
        g = self.generator(max_length=rows.shape[1] + 12, batch_size=3)
        g.append_tokens(rows)
        while not g.is_done():
            g.generate_next_token()
            self.assertEqual(g.get_next_tokens().shape, (3,))
        for i, p in enumerate(prompts):
            ids = self.tokenizer.ids(p)
            want = self.model.generate(ids, max_new_tokens=12, greedy=True).ids
            self.assertEqual(g.get_sequence(i).tolist()[len(ids):][: len(want)], want)
        self.assertEqual(self.tokenizer.decode_batch(rows)[0], self.tokenizer.decode(rows[0]))

    def test_config(self):
        c = og.Config(MODEL)
        c.clear_providers()
        c.append_provider("cpu")
        c.set_provider_option("cpu", "device_id", 0)
        c.overlay('{"search": {"max_length": 9}}')
        with og.Model(c) as m:
            self.assertEqual((m.type, m.device_type), ("llama", "cpu"))
            g = og.Generator(m, og.GeneratorParams(m))
            g.append_tokens(IDS)
            while not g.is_done():
                g.generate_next_token()
            self.assertLessEqual(g.token_count(), 9)
        for bad in (lambda: c.append_provider("npu"), lambda: c.overlay('{"model": {}}'),
                    lambda: og.GeneratorParams(self.model).set_guidance("regex", "a"), lambda: og.Adapters(c),
                    lambda: og.GeneratorParams(self.model).set_search_options(num_beams=4)):
            with self.assertRaises(NotImplementedError):
                bad()
        with self.assertRaises(ValueError):
            og.GeneratorParams(self.model).set_search_options(top=1)
        c.append_provider("cpu")
        c.set_provider_option("cpu", "enable_cuda_graph", "0")
        self.assertIn(b"runtime.executor=cpu_ref:eager", c.lines())


class Requests(unittest.TestCase):
    """og.Engine and og.Request, by the loops that programs for them have."""

    PROMPTS = [IDS, [5, 6], [9, 9, 9, 3], [400], [7] * 30]

    def setUp(self):
        self.model = og.Model(MODEL)

    def tearDown(self):
        self.model.close()

    def request(self, prompt, new=12, **options):
        params = og.GeneratorParams(self.model)
        params.set_search_options(max_length=len(prompt) + new, **dict({"do_sample": False}, **options))
        r = og.Request(params)
        r.add_tokens(np.array(prompt, dtype=np.int32))
        r.set_opaque_data([])
        return r

    def alone(self, prompt, new=12, **options):
        params = og.GeneratorParams(self.model)
        params.set_search_options(max_length=len(prompt) + new, **dict({"do_sample": False}, **options))
        g = og.Generator(self.model, params)
        g.append_tokens(prompt)
        while not g.is_done():
            g.generate_next_token()
        return g.get_sequence(0).tolist()[len(prompt):]

    def test_the_loop(self):
        engine = og.Engine(self.model)
        requests = [self.request(p) for p in self.PROMPTS]
        for r in requests:
            engine.add_request(r)
        finished = 0
        while engine.has_pending_requests():
            ready = engine.step()
            while ready.has_unseen_tokens():
                ready.get_opaque_data().append(ready.get_unseen_token())
            if ready.is_done():
                finished += 1
                engine.remove_request(ready)
        self.assertEqual(finished, len(requests))
        self.assertIsNone(engine.step())
        for p, r in zip(self.PROMPTS, requests):
            self.assertEqual(r.get_opaque_data(), self.alone(p), p)

    def test_all_steps_first(self):
        engine = og.Engine(self.model)
        options = {"do_sample": True, "temperature": 0.7, "top_k": 20, "random_seed": 5, "min_length": 14}
        requests = [self.request(p, **options) for p in self.PROMPTS]
        for r in requests:
            engine.add_request(r)
        while engine.has_pending_requests():
            engine.step()
        for p, r in zip(self.PROMPTS, requests):
            got = []
            while r.has_unseen_tokens():
                got.append(r.get_unseen_token())
            self.assertTrue(r.is_done())
            self.assertEqual(got, self.alone(p, **options), p)

    def test_added_later_and_removed(self):
        with og.Engine(self.model) as engine:
            first = self.request([1, 2], new=200)
            engine.add_request(first)
            self.assertIs(engine.step(), first)
            second = self.request([3, 4])
            engine.add_request(second)
            engine.remove_request(first)
            while not second.is_done():
                self.assertIs(engine.step(), second)
            self.assertFalse(engine.has_pending_requests())

    def test_refused(self):
        engine = og.Engine(self.model)
        r = self.request(IDS)
        for bad in (lambda: og.Engine(MODEL), lambda: og.Request(self.model), lambda: engine.add_request(1)):
            with self.assertRaises(TypeError):
                bad()
        with og.Model(MODEL) as other:
            strange = og.Request(og.GeneratorParams(other))
            strange.add_tokens(IDS)
        for bad in (lambda: engine.remove_request(r), r.get_unseen_token, lambda: engine.add_request(strange),
                    lambda: engine.add_request(og.Request(og.GeneratorParams(self.model))),
                    lambda: engine.add_request(self.request(IDS, new=0))):
            with self.assertRaises((genai_rt.InvalidError, genai_rt.StateError)):
                bad()
        engine.add_request(r)
        for bad in (lambda: engine.add_request(r), lambda: r.add_tokens([1])):
            with self.assertRaises(genai_rt.StateError):
                bad()
        engine.close()
        with self.assertRaises(genai_rt.ClosedError):
            engine.add_request(self.request(IDS))
        with self.assertRaises(genai_rt.ClosedError):
            while not r.is_done():
                engine.step()
            raise genai_rt.ClosedError("it had ended before")


class Many(unittest.TestCase):
    PROMPTS = [IDS, [5, 6], [9, 9, 9, 3], [400], [7] * 30]

    def setUp(self):
        with open_model() as m:
            self.want = [m.generate(p, max_new_tokens=20, greedy=True).ids for p in self.PROMPTS]

    def test_the_same_as_alone(self):
        with genai_rt.Engine(MODEL) as e:
            answers = [e.submit(p, max_new_tokens=20) for p in self.PROMPTS * 4]
            for a, want in zip(answers, self.want * 4):
                self.assertEqual("".join(a), a.text)
                self.assertEqual(a.ids, want)
            self.assertEqual(e.statistics()["finished"], 20)

    def test_threads(self):
        wrong = []
        with genai_rt.Engine(MODEL) as e:

            def work(k):
                try:
                    for _ in range(4):
                        a = e.submit(self.PROMPTS[k], max_new_tokens=20)
                        a.result()
                        if a.ids != self.want[k]:
                            wrong.append(k)
                except BaseException as x:
                    wrong.append(repr(x))

            threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertEqual(wrong, [])

    def test_ends(self):
        e = genai_rt.Engine(MODEL)
        a = e.submit(IDS, max_new_tokens=-1, ignore_eos=True)
        a.cancel()
        a.result()
        self.assertEqual(a.finish_reason, "cancelled")
        for bad, kind in ((lambda: e.submit([1, 512]), ValueError), (lambda: e.submit([]), ValueError),
                          (lambda: e.submit(None), TypeError), (lambda: e.submit("a", stop=[""]), ValueError),
                          (lambda: e.generate("a"), TypeError), (lambda: e.submit([1] * 600), genai_rt.LimitError),
                          (lambda: e.submit([1], greedy=False, top_p=7.0), ValueError)):
            with self.assertRaises(kind):
                bad()
        waiting = e.submit(IDS, max_new_tokens=-1, ignore_eos=True)
        e.close()
        e.close()
        waiting.result()
        for use in (lambda: e.submit(IDS), e.statistics, lambda: a.cancel()):
            with self.assertRaises(genai_rt.ClosedError):
                use()

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_fork(self):
        with genai_rt.Engine(MODEL) as e:
            e.generate([IDS], max_new_tokens=2)
            pid = os.fork()
            if not pid:
                try:
                    e.submit(IDS)
                except genai_rt.ForkedError:
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_interrupt(self):
        with genai_rt.Engine(MODEL) as e:
            timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    e.generate(self.PROMPTS, max_new_tokens=100, ignore_eos=True)
            timer.join()
            a = e.submit(IDS, max_new_tokens=20)
            a.result()
            self.assertEqual(a.ids, self.want[0])


    def test_exit_while_it_computes(self):
        code = ("import genai_rt, os, sys, threading\n"
                "e = genai_rt.Engine(os.environ['GENAI_MODEL'])\n"
                "a = e.submit([1, 2, 3], max_new_tokens=400, ignore_eos=True)\n"
                "next(a)\n"
                "def ask():\n"
                "    try:\n"
                "        while True: e.generate([[1, 2]], max_new_tokens=50, ignore_eos=True)\n"
                "    except genai_rt.ClosedError: pass\n"
                "if sys.argv[1] == 'asked': threading.Thread(target=ask, daemon=True).start()\n"
                "if sys.argv[1] == 'forked' and not os.fork(): sys.exit(3)\n"
                "if sys.argv[1] == 'forked': assert os.waitstatus_to_exitcode(os.wait()[1]) == 3\n"
                "sys.exit(7)\n")
        for how in ["alone", "asked", "forked"] * 4:
            r = subprocess.run([sys.executable, "-c", code, how], stderr=subprocess.PIPE, timeout=120)
            self.assertEqual((r.returncode, r.stderr), (7, b""), how)


class BadUse(unittest.TestCase):
    def setUp(self):
        self.model = open_model()
        self.addCleanup(self.model.close)

    def test_arrays(self):
        want = self.model.generate(IDS, max_new_tokens=8, greedy=True).ids
        wide = np.zeros((len(IDS), 3), dtype=np.int16)
        wide[:, 1] = IDS
        good = [tuple(IDS), np.array(IDS, dtype=np.uint8), np.array(IDS, dtype=">i4"), wide[:, 1],
                np.array(IDS[::-1])[::-1], np.array([IDS]), np.array(IDS, dtype=np.uint64), iter(IDS), bytearray(0) or IDS,
                memoryview(np.array(IDS)), [np.int64(i) for i in IDS]]
        for ids in good:
            self.assertEqual(self.model.generate(ids, max_new_tokens=8, greedy=True).ids, want)
        wrong = [None, 7, 1.5, [1.5], ["a"], [None], b"abc", np.array([1.5]), np.array(["a"]), np.array([[1, 2], [3, 4]]),
                 [True], np.array([True]), {"a": 1}, memoryview(np.array([1.5])), object()]
        for ids in wrong:
            with self.assertRaises(TypeError, msg=repr(ids)):
                self.model.generate(ids)
        for ids in ([2**63], np.array([2**63], dtype=np.uint64), [-(2**70)]):
            with self.assertRaises(OverflowError):
                self.model.generate(ids)
        for ids in ([-1], [512], [], [2**62], np.array([], dtype=np.int32)):
            with self.assertRaises(ValueError, msg=repr(ids)):
                self.model.generate(ids)
        self.assertEqual(self.model.generate(IDS, max_new_tokens=8, greedy=True).ids, want)

    def test_arguments(self):
        for bad in (lambda: self.model.generate("a", max_new_tokens=-1), lambda: self.model.generate("a", stop=[""]),
                    lambda: self.model.generate("a", max_new_tokens="3"), lambda: genai_rt.Model(None),
                    lambda: self.model.generate("a", temperature="hot"), lambda: genai_rt.Tokenizer(7),
                    lambda: genai_rt.TokenizerStream("x"), lambda: genai_rt.GeneratorParams(3),
                    lambda: genai_rt.Generator(self.model, None), lambda: genai_rt.Model(MODEL, context=[1]),
                    lambda: self.model.generate("a", nothing=1)):
            with self.assertRaises(TypeError):
                bad()
        for bad in (lambda: self.model.generate("a", temperature=-1.0), lambda: self.model.generate("a", top_p=2.0),
                    lambda: self.model.generate("a\ud800"), lambda: genai_rt.Model("a\0b"),
                    lambda: self.model.tokenizer.chat("{"), lambda: self.model.tokenizer.chat([3]),
                    lambda: self.model.tokenizer.chat([{"role": "user", "content": "x"}], template="{% if %}"),
                    lambda: self.model.generate([1] * 600, max_new_tokens=1)):
            with self.assertRaises((ValueError, genai_rt.LimitError)):
                bad()

    def test_errors_have_the_text(self):
        with self.assertRaisesRegex(genai_rt.ConfigError, "did you mean weight_budget") as e:
            open_model(wieght_budget=3)
        self.assertEqual(e.exception.code, -6)
        with self.assertRaisesRegex(FileNotFoundError, "/nowhere"):
            genai_rt.Model("/nowhere")
        with self.assertRaisesRegex(genai_rt.InvalidError, "token 1 is 512"):
            self.model.logits([1, 512])
        with self.assertRaises(genai_rt.LimitError):
            open_model(device_limit="100KiB")
        with self.assertRaisesRegex(genai_rt.NotFoundError, "no_such_module"):
            genai_rt.Model(MODEL, executor="no_such_module")

    def test_closed(self):
        g = genai_rt.Generator(self.model, genai_rt.GeneratorParams(self.model))
        g.append_tokens(IDS)
        tok = genai_rt.Tokenizer(self.model)
        stream = tok.create_stream()
        tok.close()
        self.assertEqual(stream.decode(5) + stream.flush(), genai_rt.Tokenizer(self.model).text([5]))
        stream.close()
        running = self.model.stream(IDS, ignore_eos=True, greedy=True)
        next(running)
        self.model.close()
        self.model.close()
        for use in (g.generate_next_token, g.get_logits, lambda: g.append_tokens(IDS), lambda: g.rewind_to(1),
                    lambda: self.model.generate(IDS), self.model.statistics, lambda: tok.ids("a"),
                    lambda: stream.decode(1), stream.flush, lambda: list(running),
                    lambda: genai_rt.Generator(self.model, genai_rt.GeneratorParams(self.model))):
            with self.assertRaises(genai_rt.ClosedError):
                use()
        g.close()

    def test_garbage(self):
        m = open_model()
        g = genai_rt.Generator(m, genai_rt.GeneratorParams(m))
        g.append_tokens(IDS)
        gone = weakref.ref(m)
        del m
        g.generate_next_token()
        g.model = None
        loop = [g]
        loop.append(loop)
        del g, loop
        gc.collect()
        self.assertIsNone(gone())

    def test_nothing_is_leaked(self):
        """Whatever is dropped first, the library is given children before parents:
        it would say so otherwise."""
        with self.assertLogs("genai_rt", "WARNING") as logs:
            genai_rt._native.log.warning("one")
            for explicit in (True, False):
                m = open_model()
                g = [genai_rt.Generator(m, genai_rt.GeneratorParams(m)) for _ in range(2)]
                g.append(g)
                m.generate(IDS, max_new_tokens=2)
                if explicit:
                    m.close()
                del m, g
                gc.collect()
        self.assertEqual(len(logs.output), 1, logs.output)

    def test_streams_found_by_the_collector(self):
        want = self.model.generate(IDS, max_new_tokens=5, greedy=True).ids
        for _ in range(3):
            loop = [self.model.stream(IDS, ignore_eos=True, greedy=True)]
            next(loop[0])
            loop.append(loop)
            del loop
            gc.collect()
            self.assertEqual(self.model.generate(IDS, max_new_tokens=5, greedy=True).ids, want)

    def test_many_models(self):
        models = [open_model() for _ in range(4)]
        texts = {tuple(m.generate(IDS, max_new_tokens=6, greedy=True).ids) for m in models}
        self.assertEqual(len(texts), 1)

    def test_threads(self):
        want = self.model.generate(IDS, max_new_tokens=30, greedy=True).ids
        wrong = []

        def work():
            for _ in range(5):
                try:
                    if self.model.generate(IDS, max_new_tokens=30, greedy=True).ids != want:
                        wrong.append("other tokens")
                    self.model.tokenizer.ids("some text")
                except BaseException as e:
                    wrong.append(repr(e))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_close_while_another_thread_works(self):
        ends = []

        def work():
            try:
                while True:
                    self.model.generate(IDS, max_new_tokens=50, ignore_eos=True, greedy=True)
            except genai_rt.ClosedError:
                ends.append(1)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        self.model.generate(IDS, max_new_tokens=50)
        self.model.close()
        for t in threads:
            t.join(30)
        self.assertEqual(len(ends), 3)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_fork(self):
        self.model.generate(IDS, max_new_tokens=2)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                self.model.tokenizer.ids("a")
                self.model.generate(IDS, max_new_tokens=2)
            except genai_rt.ForkedError:
                status = 0
            except BaseException:
                status = 2
            os._exit(status)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.model.generate(IDS, max_new_tokens=2)

    def test_interrupt(self):
        want = self.model.generate(IDS, max_new_tokens=30, greedy=True).ids
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            while True:
                self.model.generate(IDS, max_new_tokens=400, ignore_eos=True)
        timer.join()
        self.assertEqual(self.model.generate(IDS, max_new_tokens=30, greedy=True).ids, want)

    def test_progress(self):
        seen = []
        genai_rt.Model(MODEL, progress=lambda what, done, total: seen.append(what)).close()
        self.assertTrue(seen)

        def fails(*_):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            genai_rt.Model(MODEL, progress=fails)
        with self.assertRaises(genai_rt.InterruptedLoad):
            genai_rt.Model(MODEL, progress=lambda *_: True)

    def test_abandoned_stream(self):
        want = self.model.generate(IDS, max_new_tokens=10, greedy=True).ids
        for _ in range(5):
            s = self.model.stream(IDS, ignore_eos=True, greedy=True)
            next(s)
            s.close()
            self.assertEqual(s.result.finish_reason, "interrupted")
        a, b = (self.model.stream(IDS, max_new_tokens=10, greedy=True) for _ in range(2))
        for _ in zip(a, b):
            pass
        self.assertEqual(self.model.generate(IDS, max_new_tokens=10, greedy=True).ids, want)

    def test_async(self):
        async def run():
            pieces = [p async for p in self.model.astream(IDS, max_new_tokens=12, greedy=True)]
            whole = await self.model.agenerate(IDS, max_new_tokens=12, greedy=True)
            return "".join(pieces), str(whole)

        a, b = asyncio.run(run())
        self.assertEqual(a, b)

    def test_spawned_children(self):
        code = ("import genai_rt, os; m = genai_rt.Model(os.environ['GENAI_MODEL']); "
                "print(m.generate([1, 2], max_new_tokens=3, greedy=True, ignore_eos=True).ids)")
        with tempfile.TemporaryDirectory() as d:  # another folder: the modules are found nevertheless
            runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=d) for _ in range(2)]
            outs = [r.communicate()[0] for r in runs]
        self.assertEqual(outs[0], outs[1])
        self.assertTrue(outs[0])
        self.assertIn(b"[", outs[0])


class Fuzz(unittest.TestCase):
    def test_any_arguments(self):
        """Every method with every wrong thing: an exception, never a crash."""
        m = open_model()
        things = [None, 0, -1, 2**40, 1.5, "", "x", b"\xff", [], [1], [2**64], {}, object(), np.zeros((2, 2)),
                  np.array([3]), m, float("nan"), True]
        tok = m.tokenizer
        params = genai_rt.GeneratorParams(m)
        g = genai_rt.Generator(m, params)
        engine = og.Engine(m)
        request = og.Request(params)
        targets = [m, tok, params, g, tok.create_stream(), genai_rt.Config(MODEL), engine, request]
        rng = np.random.default_rng(1)
        called = 0
        for t in targets:
            for name in dir(t):
                if name.startswith("_") or name in ("close", "astream", "agenerate"):
                    continue
                f = getattr(t, name)
                if not callable(f):
                    continue
                for _ in range(40):
                    args = [things[i] for i in rng.integers(0, len(things), rng.integers(0, 4))]
                    called += 1
                    try:
                        r = f(*args)
                        if name in ("generate", "stream"):
                            for _, _ in zip(r, range(2)):
                                pass
                    except Exception:
                        pass
        self.assertGreater(called, 1000)
        self.assertEqual(len(m.generate([1, 2, 3], max_new_tokens=4, greedy=True, ignore_eos=True).ids), 4)


if __name__ == "__main__":
    # who runs this in the background has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main(verbosity=2)
