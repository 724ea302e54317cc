# SPDX-License-Identifier: Apache-2.0
"""Makes the models of tests/golden/text-models, which speak, and what transformers lets them say; README.md there.

    python make_text_models.py            trains both anew (some minutes); the same versions on the same kind of CPU give
                                          the same bytes
    python make_text_models.py NAME...    only these
    python make_text_models.py --check    reads the committed folders back, generates again, and compares; writes nothing

A model learns the questions and answers below by heart, so that its greedy text is prose, its two best logits lie far
apart (SMALLEST_GAP), it ends its replies itself, and characters come in several tokens.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

import tokenizer_files
from golden_reference import Rejected

HERE = pathlib.Path(__file__).resolve().parent / "text-models"
SMALLEST_GAP = 0.05     # of the two best logits, at every step; ours differ from transformers' by 1e-4 at most
STEPS = 900
MOST_SEEDS = 20
ROWS, LENGTH = 8, 224    # of a training batch
NEW_TOKENS = 64
SYSTEM = "Answer in one line."
PAIRS = (
    ("What is a headrace?", "A headrace is the channel that brings water to the wheel. 🌊"),
    ("Wie heißt das auf Deutsch?", "Auf Deutsch heißt es Obergraben: größer als ein Bach, kleiner als ein Fluß."),
    ("Et en français ?", "En français : le canal d'amenée, à côté du moulin."),
    ("水车是什么？", "水车由水推动。💧"),
    ("Где мельница?", "Мельница стоит у реки."),
    ("Count to five.", "1, 2, 3, 4, 5."),
    ("Write a line of code.", "```\nint x = 42;\n```"),
    ("Who brings the weights?", "The copy lane brings the weights, layer by layer; the compute lane waits for none. 👍🏽"),
    ("Say nothing.", ""),
    ("Thank you!", "You're welcome — até logo!"),
)
TEXTS = (
    "The water flows through the channel and turns the wheel — día y noche, 昼も夜も, day and night. ",
    "Before the wheel needs the water, the headrace brings it; naïve mills wait. 🎉\n",
)
LAST = "In the end the wheel stops. Schluß! 完"  # then an end token, the padding one
PROMPTS = (
    "The water flows",
    "Before the wheel needs",
    "The water flows through the channel and turns the wheel — día y",
    "Before the wheel needs the water, the headrace brings it; naïve mills",
    "day and night. The",
    "In the end",
)
CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
INST = """{%- if messages[0]['role'] == 'system' %}
    {%- set system = '<<SYS>>\\n' + messages[0]['content'] | trim + '\\n<</SYS>>\\n\\n' %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the system prompt, user and assistant must take turns') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- bos_token + '[INST] ' + (system if loop.first else '') + message['content'] | trim + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] | trim + ' ' + eos_token }}
    {%- endif %}
{%- endfor %}
"""


def qwen3():
    files = tokenizer_files.qwen(420)
    names = {token["content"]: token["id"] for token in files["added_tokens"]}
    config = Qwen3Config(
        vocab_size=len(names) + 420, hidden_size=48, intermediate_size=100, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, tie_word_embeddings=True,
        use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0), bos_token_id=None,
        eos_token_id=names["<|im_end|>"], pad_token_id=None, attn_implementation="eager")
    generation = dict(do_sample=True, temperature=0.6, top_k=20, top_p=0.95, pad_token_id=names["<|endoftext|>"],
                      eos_token_id=[names["<|im_end|>"], names["<|endoftext|>"]])
    tokens = dict(tokenizer_class="Qwen2Tokenizer", bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                  unk_token=None, add_bos_token=False, add_prefix_space=False, errors="replace",
                  additional_special_tokens=["<|im_start|>", "<|im_end|>"], chat_template=CHATML)
    return dict(model=Qwen3ForCausalLM, config=config, tokenizer=files, generation=generation, tokenizer_config=tokens)


def llama():
    files = tokenizer_files.llama2(180, tokenizer_files.LATIN)
    config = LlamaConfig(
        vocab_size=len(files["model"]["vocab"]), hidden_size=48, intermediate_size=100, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0), bos_token_id=1, eos_token_id=2,
        pad_token_id=None, attn_implementation="eager")
    tokens = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                  pad_token="</s>")
    return dict(model=LlamaForCausalLM, config=config, tokenizer=files, template=INST, tokenizer_config=tokens,
                generation=dict(bos_token_id=1, eos_token_id=2))


MODELS = {"qwen3-chat": qwen3, "llama-byte-fallback": llama}


def save_tokenizer(folder, parts):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(tokenizer_files.tokenizer_json(parts["tokenizer"]))
    config = dict(parts["tokenizer_config"], clean_up_tokenization_spaces=False, model_max_length=512)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    if "template" in parts:
        (folder / "chat_template.jinja").write_text(parts["template"])
    parts["config"].save_pretrained(folder)  # AutoTokenizer looks at it


def conversations(rng):
    """Random turns; now and then a system prompt, which changes no answer."""
    messages = [dict(role="system", content=SYSTEM)] if rng.random() < 0.3 else []
    for i in rng.integers(0, len(PAIRS), rng.integers(1, 5)):
        question, answer = PAIRS[i]
        messages += [dict(role="user", content=question), dict(role="assistant", content=answer)]
    return messages


def training_rows(tokenizer, rng):
    """[ROWS, LENGTH + 1] ids: conversations and texts one after the other, cut anywhere but where they begin."""
    rows = []
    for _ in range(ROWS):
        row = []
        while len(row) <= LENGTH:
            what = rng.random()
            if what < 0.6:
                row += tokenizer.apply_chat_template(conversations(rng), return_dict=False)
            elif what < 0.7:
                row += tokenizer.encode(LAST) + [tokenizer.pad_token_id]
            else:
                row += tokenizer.encode(TEXTS[rng.integers(len(TEXTS))] * 3)
        rows.append(row[:LENGTH + 1])
    return torch.tensor(rows)


def train(parts, tokenizer, seed):
    torch.manual_seed(seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    model = parts["model"](parts["config"]).to(torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=STEPS)
    for step in range(STEPS):
        rows = training_rows(tokenizer, rng)
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.3f} after {STEPS} steps", flush=True)
    return model.to(torch.bfloat16)


@torch.no_grad()
def reply(model, ids, ends):
    """Greedy ids after `ids`, up to NEW_TOKENS, the end token included."""
    out = []
    while len(out) < NEW_TOKENS and not (out and out[-1] in ends):
        row = model(input_ids=torch.tensor([ids + out]), use_cache=False).logits[0, -1]
        best = torch.topk(row, 2).values
        if best[0] - best[1] < SMALLEST_GAP:
            raise Rejected(f"a gap of {best[0] - best[1]:.2g} after {len(out)} tokens")
        out.append(int(row.argmax()))
    return out


def said(tokenizer, ids, new, ends):
    return dict(ids=ids, new_ids=new, ended=new[-1] in ends, text=tokenizer.decode(new, skip_special_tokens=True),
                text_with_special=tokenizer.decode(new), whole=tokenizer.decode(ids + new, skip_special_tokens=True))


def batched(model, tokenizer, ends):
    """Of transformers' own generate() with all prompts at once, padded on the left."""
    tokenizer.padding_side = "left"
    inputs = tokenizer(list(PROMPTS), return_tensors="pt", padding=True, return_token_type_ids=False)
    out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, temperature=None, top_k=None, top_p=None,
                         eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    return [tokenizer.decode(row[inputs["input_ids"].shape[1]:], skip_special_tokens=True) for row in out]


def chat(model, tokenizer, ends, questions, system=None):
    messages = [dict(role="system", content=system)] if system else []
    turns = []
    for question in questions:
        messages.append(dict(role="user", content=question))
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        turns.append(dict(question=question, prompt=prompt) | said(tokenizer, ids, reply(model, ids, ends), ends))
        messages.append(dict(role="assistant", content=turns[-1]["text"]))
    return dict(system=system, turns=turns)


def reference(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    ends = ends if isinstance(ends, list) else [ends]
    prompts = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        prompts.append(dict(prompt=prompt) | said(tokenizer, ids, reply(model, ids, ends), ends))
    if batched(model, tokenizer, ends) != [p["text"] for p in prompts]:
        raise Rejected("a batch says something else")
    questions = [pair[0] for pair in PAIRS]
    return dict(
        new_tokens=NEW_TOKENS, end_ids=ends, smallest_gap=SMALLEST_GAP, prompts=prompts,
        chats=[chat(model, tokenizer, ends, questions[:3]),
               chat(model, tokenizer, ends, [questions[3], questions[8], questions[7]], SYSTEM),
               chat(model, tokenizer, ends, [questions[4], questions[6], questions[9]])],
        versions=dict(torch=torch.__version__, transformers=transformers.__version__))


def text_of(facts):
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def make(name):
    parts = MODELS[name]()
    folder = HERE / name
    for seed in range(MOST_SEEDS):
        save_tokenizer(folder, parts)
        model = train(parts, AutoTokenizer.from_pretrained(folder), seed)
        model.config.dtype = torch.bfloat16
        model.save_pretrained(folder)
        (folder / "generation_config.json").write_text(json.dumps(parts["generation"], indent=2) + "\n")
        try:
            facts = reference(folder)
        except Rejected as why:
            print(f"{name}: seed {seed}: {why}", flush=True)
            continue
        (folder / "reference-text.json").write_text(text_of(facts))
        for file in folder.iterdir():
            file.chmod(0o644)
        print(f"{name}: made with seed {seed}", flush=True)
        return
    sys.exit(f"{name}: no seed below {MOST_SEEDS} passes")


def check(name):
    recorded = json.loads((HERE / name / "reference-text.json").read_text())
    computed = reference(HERE / name)
    for key in ("prompts", "chats"):
        if computed[key] != recorded[key]:
            sys.exit(f"{name}: {key} are not what is recorded")
    print(f"{name}: as committed", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; both if none is named")
    parser.add_argument("--check", action="store_true", help="compare the folders instead of making them")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MODELS:
            parser.error(f"unknown model '{name}': expected one of {', '.join(MODELS)}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.disable_progress_bar()
    for name in arguments.names or MODELS:
        (check if arguments.check else make)(name)


if __name__ == "__main__":
    main()
