# SPDX-License-Identifier: Apache-2.0
"""Makes the tokenizer files of tests/golden/text with the `tokenizers` and `sentencepiece` packages, and what they
answer on random strings and ids, as digests; text/README.md says what they are for.

    python make_tokenizers.py                    trains every file anew and writes all digests: the same bytes each time
    python make_tokenizers.py NAME...            only these
    python make_tokenizers.py --check [NAME...]  does the same and compares with the committed files; writes nothing
    python make_tokenizers.py --print NAME KIND GROUP
                                                 what the package answers in one group, a line each; KIND is strings or
                                                 ids. HEADRACE_TEXT_PRINT="NAME KIND GROUP" of text_golden_test prints
                                                 what we answer, in the same form
"""

import argparse
import json
import os
import pathlib
import struct
import sys

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402

import tokenizer_files  # noqa: E402
from text_random import RandomStrings, random_ids, xxh64  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "text"
STRINGS = 100_000
SEQUENCES = 20_000  # of ids
GROUP = 50


class Package:
    """A tokenizer.json, as the `tokenizers` package reads it."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size()

    def encode(self, text, specials):
        return self.tokenizer.encode(text, add_special_tokens=specials).ids

    def decode(self, ids, specials):
        return self.tokenizer.decode(ids, skip_special_tokens=not specials)


class SentencePiece:
    """A tokenizer.model, as sentencepiece reads it: <s> before a text. Control pieces and ids that are no piece's have
    no text. A text with a control piece's name in it is read as an empty one: there the packages differ."""

    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.size = self.processor.get_piece_size()

    def encode(self, text, specials):
        if any(name in text for name in ("<s>", "</s>", "<unk>")):
            text = ""
        return [self.processor.bos_id()] * specials + self.processor.encode(text)

    def decode(self, ids, specials):
        return self.processor.decode([i for i in ids if i < self.size])


def opened(name):
    folder = HERE / name
    if (folder / "tokenizer.json").exists():
        return Package(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")))
    if (folder / "tokenizer.model").exists():
        return SentencePiece(folder / "tokenizer.model")
    import transformers  # takes seconds
    return Package(transformers.GPT2Tokenizer.from_pretrained(folder).backend_tokenizer)


def answers_to_string(package, text):
    ids = package.encode(text, True)
    return dict(text=text, ids=ids, inner=package.encode(text, False), shown=package.decode(ids, True),
                hidden=package.decode(ids, False))


def answers_to_ids(package, ids):
    return dict(ids=ids, shown=package.decode(ids, True), hidden=package.decode(ids, False))


def packed(value):
    """Ids: their number and each in four bytes; a text: the number of its bytes in four, and these."""
    if isinstance(value, list):
        return struct.pack(f"<{len(value) + 1}I", len(value), *value)
    data = value.encode()
    return struct.pack("<I", len(data)) + data


class Answers:
    def __init__(self, package):
        self.package = package
        self.strings = RandomStrings()

    def group(self, kind, group):
        numbers = range(group * GROUP, (group + 1) * GROUP)
        if kind == "strings":
            return [answers_to_string(self.package, self.strings.string(n)) for n in numbers]
        return [answers_to_ids(self.package, random_ids(n, self.package.size)) for n in numbers]

    def digests(self, kind, count):
        lines = []
        for group in range(count // GROUP):
            data = b"".join(packed(value) for answer in self.group(kind, group) for value in answer.values())
            lines.append(f"{xxh64(data):016x}\n")
        return "".join(lines)


def drawn():
    """What C++ must draw alike: a digest of the first strings, and one of the first ids for 1,000 tokens."""
    strings = RandomStrings()
    packs = (b"".join(packed(strings.string(n)) for n in range(5000)),
             b"".join(packed(random_ids(n, 1000)) for n in range(5000)))
    return "".join(f"{xxh64(pack):016x}\n" for pack in packs)


def examples(package):
    """The same for a few texts, to be read."""
    texts = json.loads((HERE / "examples.json").read_text())
    lines = [json.dumps(answers_to_string(package, text), ensure_ascii=False) for text in texts]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def put(path, content, checking):
    """Writes a file, or says whether it is already what it would be."""
    content = content.encode() if isinstance(content, str) else content
    if checking:
        if path.read_bytes() == content:
            return True
        print(f"{path}: not what is made now")
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)
    return True


def make(name, checking):
    folder = HERE / name
    same = all([put(folder / file, content, checking) for file, content in tokenizer_files.FILES[name]().items()])
    package = opened(name)
    answers = Answers(package)
    same &= put(folder / "examples.json", examples(package), checking)
    same &= put(folder / "strings.digests", answers.digests("strings", STRINGS), checking)
    same &= put(folder / "ids.digests", answers.digests("ids", SEQUENCES), checking)
    said = "made" if not checking else "as committed" if same else "DIFFERENT"
    print(f"{name}: {package.size} tokens, {said}", flush=True)
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="tokenizer files to make; all of them if none is named")
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of writing them")
    parser.add_argument("--print", nargs=3, metavar=("NAME", "KIND", "GROUP"), help="what the package answers")
    arguments = parser.parse_args()
    if arguments.print:
        name, kind, group = arguments.print
        for answer in Answers(opened(name)).group(kind, int(group)):
            print(json.dumps(answer, separators=(",", ":")))
        return
    for name in arguments.names:
        if name not in tokenizer_files.FILES:
            parser.error(f"unknown file '{name}': expected one of {', '.join(tokenizer_files.FILES)}")
    same = put(HERE / "drawn.digests", drawn(), arguments.check)
    for name in arguments.names or tokenizer_files.FILES:
        same &= make(name, arguments.check)
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
