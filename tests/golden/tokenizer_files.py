# SPDX-License-Identifier: Apache-2.0
"""The tokenizer files of tests/golden/text: each family's components, around a vocabulary that is trained here.

A tokenizer.json is put together from its parts and written as the `tokenizers` package writes it; nothing but the
vocabulary and the merges is trained. README.md in tests/golden/text says what each is there for.
"""

import io
import json

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from text_corpus import LATIN, Corpus

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
          r"""|\s+(?!\S)|\s+""")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = (r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"""
          r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"""
          r"""| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
CORPUS_SIZE = 400_000
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(size, pre_tokenizer, normalizer=None, alphabet=(), languages=None, seed=1):
    """(tokens, merges) of a BPE of `size` tokens: the alphabet in order of code points, then what the merges make."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    corpus = Corpus(seed, languages) if languages is not None else Corpus(seed)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(corpus.text(CORPUS_SIZE).split("\n\n"), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def byte_level(size, pattern, seed=1):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    pre = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return trained(size, pre, alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), seed=seed)


def metaspace(size, languages, seed):
    """Words with the space before them; runs of spaces are tokens of their own."""
    runs = pre_tokenizers.Split(Regex(r"▁+(?=▁)|▁?[^▁\n]+|▁+|\n+"), "isolated")
    return trained(size, runs, normalizer=normalizers.Replace(" ", "▁"), languages=languages, seed=seed)


def added(number, content, special=True, **flags):
    token = dict(id=number, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False,
                 special=special)
    return token | flags


def numbered(tokens, first=0):
    return {token: first + i for i, token in enumerate(tokens)}


def bpe(vocab, merges, **options):
    return dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=merges) | options


def parts(model, added_tokens, normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None):
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added_tokens, normalizer=normalizer,
                pre_tokenizer=pre_tokenizer, post_processor=post_processor, decoder=decoder, model=model)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return dict(type="Split", pattern={kind: pattern}, behavior=behavior, invert=invert)


def bytes_of_words(use_regex=False, add_prefix_space=False, trim_offsets=True):
    return dict(type="ByteLevel", add_prefix_space=add_prefix_space, trim_offsets=trim_offsets, use_regex=use_regex)


def sequence(*items, key="pretokenizers"):
    return {"type": "Sequence", key: list(items)}


def replace(pattern, content, kind="String"):
    return dict(type="Replace", pattern={kind: pattern}, content=content)


def template(token, number, last=None):
    """`token` before a text, `last` = (token, id) behind it."""
    def special(name):
        return dict(SpecialToken=dict(id=name, type_id=0))
    names = {token: number} | ({last[0]: last[1]} if last else {})
    single = [special(token), dict(Sequence=dict(id="A", type_id=0))] + ([special(last[0])] if last else [])
    pair = single + [dict(Sequence=dict(id="B", type_id=1))]
    return dict(type="TemplateProcessing", single=single, pair=pair, special_tokens={
        name: dict(id=name, ids=[i], tokens=[name]) for name, i in names.items()})


METASPACE_DECODER = sequence(replace("▁", " "), dict(type="ByteFallback"), dict(type="Fuse"),
                             dict(type="Strip", content=" ", start=1, stop=0), key="decoders")


def gpt2():
    tokens, merges = byte_level(1500, GPT2)
    end = len(tokens)
    model = bpe(numbered(tokens + ["<|endoftext|>"]), merges)
    return parts(model, [added(end, "<|endoftext|>")], pre_tokenizer=bytes_of_words(use_regex=True),
                 post_processor=bytes_of_words(use_regex=True, trim_offsets=False), decoder=bytes_of_words(True, True))


def llama3(size=2000):
    tokens, merges = byte_level(size, LLAMA3, seed=2)
    # Every fifth merge of the rarer half is left out: ignore_merges alone reaches what it makes.
    merges = [m for i, m in enumerate(merges) if i < len(merges) // 2 or i % 5]
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>",
             "<|end_header_id|>", "<|eot_id|>"]
    specials = numbered(names, len(tokens))
    return parts(
        bpe(numbered(tokens), merges, ignore_merges=True), [added(i, name) for name, i in specials.items()],
        pre_tokenizer=sequence(split(LLAMA3), bytes_of_words()),
        post_processor=sequence(bytes_of_words(True, True, False), template(names[0], specials[names[0]]),
                                key="processors"),
        decoder=bytes_of_words(True, True))


def qwen(size=1800):
    tokens, merges = byte_level(size, QWEN2, seed=3)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
    added_tokens = [added(len(tokens) + i, name, special=i < 3) for i, name in enumerate(names)]
    return parts(bpe(numbered(tokens), merges, continuing_subword_prefix="", end_of_word_suffix=""), added_tokens,
                 normalizer=dict(type="NFC"), pre_tokenizer=sequence(split(QWEN2), bytes_of_words(trim_offsets=False)),
                 post_processor=bytes_of_words(trim_offsets=False), decoder=bytes_of_words(trim_offsets=False))


def llama2(size=1200, languages=LATIN + ("russian", "greek")):
    tokens, merges = metaspace(size, languages, seed=4)
    names = ["<unk>", "<s>", "</s>"]
    model = bpe(numbered(names + BYTES + tokens), merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return parts(
        model, [added(i, name) for i, name in enumerate(names)],
        normalizer=sequence(dict(type="Prepend", prepend="▁"), replace(" ", "▁"), key="normalizers"),
        post_processor=template("<s>", 1), decoder=METASPACE_DECODER)


def mistral():
    tokens, merges = metaspace(1200, LATIN + ("japanese", "emoji"), seed=5)
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"]
    model = bpe(numbered(names + BYTES + tokens), merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return parts(
        model, [added(i, name) for i, name in enumerate(names)],
        pre_tokenizer=dict(type="Metaspace", replacement="▁", prepend_scheme="first", split=False),
        post_processor=template("<s>", 1), decoder=METASPACE_DECODER)


def tekken():
    tokens, merges = byte_level(1600, TEKKEN, seed=6)
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<pad>"]
    return parts(bpe(numbered(names + tokens), merges, ignore_merges=True), [added(i, n) for i, n in enumerate(names)],
                 pre_tokenizer=sequence(split(TEKKEN), bytes_of_words()), post_processor=template("<s>", 1),
                 decoder=bytes_of_words(True, True))


def gemma():
    tokens, merges = metaspace(1200, LATIN + ("arabic", "hebrew"), seed=7)
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    model = bpe(numbered(names + BYTES + tokens), merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return parts(
        model, [added(i, name) for i, name in enumerate(names)], normalizer=replace(" ", "▁"),
        pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"), post_processor=template("<bos>", 2),
        decoder=sequence(replace("▁", " "), dict(type="ByteFallback"), dict(type="Fuse"), key="decoders"))


def added_tokens():
    """Tokens of every flag, over a normaliser that changes what they are looked for in."""
    tokens, merges = byte_level(900, GPT2, seed=8)
    n = len(tokens)
    listed = [
        added(n, "<s>"), added(n + 1, "</s>", normalized=True), added(n + 2, "<unk>", rstrip=True),
        added(n + 3, "[MASK]", lstrip=True), added(n + 4, "[LEFT]", special=False, lstrip=True, normalized=True),
        added(n + 5, "[RIGHT]", special=False, rstrip=True), added(n + 6, "[BOTH]", lstrip=True, rstrip=True),
        added(n + 7, "word", special=False, single_word=True, normalized=True),
        added(n + 8, "<NORM>", special=False, normalized=True), added(n + 9, "café", special=False, normalized=True),
        added(n + 10, "café<s>", special=False), added(n + 11, "  ", special=False, normalized=True),
        added(n + 12, "WORD", single_word=True, lstrip=True, rstrip=True), added(n + 13, "<|im_st", special=False),
    ]
    return parts(
        bpe(numbered(tokens), merges), listed,
        normalizer=sequence(dict(type="NFKC"), dict(type="Lowercase"), key="normalizers"),
        pre_tokenizer=bytes_of_words(True, True),
        post_processor=template("<s>", n, ("</s>", n + 1)), decoder=bytes_of_words(True, True))


def components():
    """What the others lack: decomposition, regular replacements, each behaviour of a split, no byte fallback."""
    tokens, merges = trained(900, pre_tokenizers.Metaspace(), languages=LATIN, seed=9)
    names = ["<unk>", "<s>"]
    known = [token for token in tokens if token not in "&%"]
    merges = [pair for pair in merges if "&" not in pair and "%" not in pair]
    model = bpe(numbered(names + known), merges, unk_token="<unk>")
    return parts(
        model, [added(i, name) for i, name in enumerate(names)],
        normalizer=sequence(dict(type="NFD"), replace(r"\p{Mn}", "", "Regex"), dict(type="NFKD"), replace("``", '"'),
                            dict(type="Strip", strip_left=True, strip_right=True), replace(r"\s{2,}", " ", "Regex"),
                            dict(type="NFC"), key="normalizers"),
        pre_tokenizer=sequence(
            split(r"\p{N}{1,3}"), split(r"[.,;]", "MergedWithPrevious"), split(r"[(\[{]", "MergedWithNext"),
            split("-", "Contiguous", kind="String"), split(r"[^\t]+", "Removed", invert=True),
            dict(type="Digits", individual_digits=True),
            dict(type="Metaspace", replacement="▁", prepend_scheme="always", split=True)),
        post_processor=template("<s>", 1),
        decoder=dict(type="Metaspace", replacement="▁", prepend_scheme="always", split=True))



def tokenizer_json(content, merges_as_text=False):
    """Read and written by the package: what it cannot read is no tokenizer.json."""
    content = json.loads(Tokenizer.from_str(json.dumps(content)).to_str())
    if merges_as_text:  # as files were before its version 0.20
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def as_json(make, **options):
    return lambda: {"tokenizer.json": tokenizer_json(make(), **options)}


def opt():
    """vocab.json and merges.txt; </s> before a text, as tokenizer_config.json says."""
    tokens, merges = byte_level(1300, GPT2, seed=11)
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    def token(name):
        return dict(__type="AddedToken", content=name, lstrip=False, normalized=True, rstrip=False, single_word=False)
    config = dict(add_bos_token=True, add_prefix_space=False, bos_token=token("</s>"), eos_token=token("</s>"),
                  errors="replace", pad_token=token("<pad>"), tokenizer_class="GPT2Tokenizer", unk_token=token("</s>"))
    keys = ("bos_token", "eos_token", "unk_token")
    special = {key: {k: v for k, v in config[key].items() if k != "__type"} for key in keys}
    return {
        "vocab.json": json.dumps(numbered(names + tokens), ensure_ascii=True) + "\n",
        "merges.txt": "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges),
        "tokenizer_config.json": json.dumps(config) + "\n",
        "special_tokens_map.json": json.dumps(special | dict(pad_token="<pad>")) + "\n",
    }


def sentencepiece_model():
    model = io.BytesIO()
    corpus = Corpus(10, LATIN + ("russian",))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.text(CORPUS_SIZE).split("\n")), model_writer=model, vocab_size=1400,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2)
    config = dict(tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=False, bos_token="<s>",
                  eos_token="</s>", unk_token="<unk>", legacy=False)
    return {"tokenizer.model": model.getvalue(), "tokenizer_config.json": json.dumps(config) + "\n"}


# Each gives its files' contents by their names.
FILES = {
    "gpt2": as_json(gpt2, merges_as_text=True), "llama3": as_json(llama3), "qwen": as_json(qwen),
    "llama2": as_json(llama2), "mistral": as_json(mistral), "tekken": as_json(tekken), "gemma": as_json(gemma),
    "added-tokens": as_json(added_tokens), "components": as_json(components), "opt": opt,
    "sentencepiece": sentencepiece_model,
}
