# SPDX-License-Identifier: Apache-2.0
"""Conversations, and what jinja2 renders of them, set up as transformers' apply_chat_template sets it up.

    python make_chats.py             writes conversations.json and rendered.json anew; jinja2 is enough
    python make_chats.py --check     renders the committed conversations again and compares, with transformers' own
                                     environment too where that is installed; writes nothing

The six templates are written for these tests, with the constructs of the families' templates. Every one renders all
conversations: rendered.json has a digest (XXH64) of each text, or the message that was raised, and some texts in full.
expressions.json is written by hand: a conversation and templates of one construct each; their texts are in full.
"""

import argparse
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from text_random import SplitMix64, xxh64  # noqa: E402

CONVERSATIONS = 200
FULL = (0, 7, 13, 29)                 # of each template in full
NOW = datetime.datetime(2023, 11, 14, 22, 13, 20)  # 1,700,000,000 seconds
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES = sorted(path.name for path in HERE.glob("*.jinja"))


# ------------------------------------------------------------------------------------------------ transformers' way
class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def prepared(messages):
    """Without keys of null; what was reasoned under the names that templates look for."""
    made = []
    for message in messages:
        message = {key: value for key, value in message.items() if value is not None}
        names = [name for name in ("reasoning_content", "thinking", "reasoning") if name in message]
        if names:
            reasoning = message[names[0]]
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        made.append(message)
    return made


def variables(conversation, add_generation_prompt):
    return dict(messages=prepared(conversation["messages"]), tools=conversation.get("tools"), documents=None,
                add_generation_prompt=add_generation_prompt, **{**TOKENS, **conversation.get("chat_template_kwargs", {})})


def rendered(template, conversation, add_generation_prompt):
    try:
        return {"text": template.render(**variables(conversation, add_generation_prompt))}
    except Exception as error:  # of whatever kind: what the template does with its values
        return {"error": str(error)}


def with_transformers(source, conversation, add_generation_prompt):
    from transformers.utils import chat_template_utils

    class Clock(datetime.datetime):
        @classmethod
        def now(cls):
            return NOW

    chat_template_utils.datetime = Clock
    messages = [{k: v for k, v in m.items() if v is not None} for m in conversation["messages"]]
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], tools=conversation.get("tools"), chat_template=source,
            add_generation_prompt=add_generation_prompt, **{**TOKENS, **conversation.get("chat_template_kwargs", {})})
        return {"text": texts[0]}
    except Exception as error:
        return {"error": str(error)}


# ------------------------------------------------------------------------------------------------- conversations
WORDS = ["Hello", "wheel", "WATER", "mill's", "\"quoted\"", "<b>bold</b>", "&amp;", "Überfluß", "naïve", "漢字", "水車",
         "🦦", "👩‍👩‍👧", "e\u0301", "مرحبا", "ΣΊΣΥΦΟΣ", "ﬁn", "{{ x }}", "{% if %}", "<|im_end|>", "[INST]", "\\n", "12", "3.5",
         "-", "a_b", "\u00a0", "\u200b", "\u2028", "\t", "</think>", "C:\\dir"]
BETWEEN = [" ", " ", " ", " ", "\n", "\n\n", "  ", ", ", "\r\n"]
TOOLS = [
    {"type": "function", "function": {
        "name": "water_level", "description": "Level of the \"headrace\" at <place>, in m.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string", "description": "Where, e.g. Zürich"},
                                                        "unit": {"type": "string", "enum": ["m", "ft"]}},
                       "required": ["place"]}}},
    {"type": "function", "function": {
        "name": "open_sluice", "description": "Opens a sluice", "parameters": {
            "type": "object", "properties": {"share": {"type": "number", "minimum": 0, "maximum": 1.0}}},
        "return": {"type": "boolean"}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]


class Draw:
    def __init__(self, number):
        self.rng = SplitMix64(1_000_003 * number)

    def below(self, n):
        return self.rng.below(n)

    def one_in(self, n):
        return self.below(n) == 0

    def of(self, items):
        return items[self.below(len(items))]

    def text(self):
        if self.one_in(12):
            return self.of(["", " ", "\n", "x"])
        text = self.of(["", "", "", " ", "\n"])
        for _ in range(1 + self.below(9)):
            text += self.of(WORDS) + self.of(BETWEEN)
        return text if self.one_in(3) else text.strip()

    def value(self, depth=0):
        kind = self.below(8 if depth < 2 else 5)
        if kind < 2:
            return self.text()
        if kind < 5:
            return self.of([0, -7, 3, 12345678901, 0.5, -2.25, 1e-7, 1e21, True, False, None])
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.below(4))]
        return {self.of(["place", "unit", "Share", "é", "n"]) + str(i): self.value(depth + 1) for i in range(self.below(4))}

    def call(self):
        arguments = {self.of(["place", "unit", "share", "deep", "Ünit"]): self.value() for _ in range(self.below(4))}
        call = {"type": "function", "function": {"name": self.of(["water_level", "open_sluice", "now"]),
                                                 "arguments": arguments}}
        if not self.one_in(6):
            call["id"] = "".join(self.of("abcdefghij0123456789") for _ in range(9 if not self.one_in(10) else 8))
        return call

    def assistant(self, calls):
        message = {"role": "assistant", "content": self.text()}
        if self.one_in(4):
            message["content"] = "<think>\n" + self.text() + "\n</think>\n\n" + message["content"]
        elif self.one_in(5):
            message[self.of(["reasoning_content", "reasoning", "thinking"])] = self.text()
        if calls:
            message["tool_calls"] = [self.call() for _ in range(1 if not self.one_in(3) else 2)]
            if not self.one_in(3):
                message["content"] = self.of([None, ""])
        return message

    def conversation(self):
        messages, tools = [], self.one_in(3)
        if self.one_in(2):
            messages.append({"role": "system" if not self.one_in(12) else "developer", "content": self.text()})
        for _ in range(1 + self.below(4)):
            user = {"role": "user", "content": self.text()}
            if self.one_in(15):
                user["content"] = [{"type": "text", "text": self.text()} for _ in range(1 + self.below(3))]
            messages.append(user)
            if tools and self.one_in(2):
                message = self.assistant(True)
                messages.append(message)
                for call in message["tool_calls"]:
                    answer = {"role": "tool", "content": json.dumps(self.value(), ensure_ascii=False)}
                    if "id" in call:
                        answer["tool_call_id"] = call["id"]
                    messages.append(answer)
            messages.append(self.assistant(False))
        if not self.one_in(4):
            messages.pop()
        if self.one_in(12) and len(messages) > 2:  # out of turn
            del messages[self.below(len(messages))]
        conversation = {"messages": messages}
        if tools:
            conversation["tools"] = TOOLS[:1 + self.below(3)]
        if self.one_in(3):
            conversation["chat_template_kwargs"] = self.of([
                {"enable_thinking": False}, {"enable_thinking": True}, {"use_default_prompt": True},
                {"date_string": "1 Apr 2031"}, {"tools_in_user_message": False},
                {"builtin_tools": ["now", "interpreter"]}])
        return conversation


def has_generation_prompt(number):
    return number % 3 != 0


def render_all(render_one):
    """`render_one` gets a template's text, a conversation and whether the next message is begun."""
    document = json.loads((HERE / "conversations.json").read_text())
    hand = json.loads((HERE / "expressions.json").read_text())
    made = {"templates": {}, "expressions": [render_one(source, hand["conversation"], True)
                                             for source in hand["templates"]]}
    for name in TEMPLATES:
        source = (HERE / name).read_text()
        answers = [render_one(source, conversation, has_generation_prompt(i))
                   for i, conversation in enumerate(document)]
        made["templates"][name] = {
            "answers": [f"{xxh64(a['text'].encode()):016x}" if "text" in a else "raised: " + a["error"] for a in answers],
            "full": {str(i): answers[i]["text"] for i in FULL if "text" in answers[i]}}
    return made


def lines(items):
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    env = environment()
    if not check:
        (HERE / "conversations.json").write_text(lines(Draw(i).conversation() for i in range(CONVERSATIONS)))
    made = render_all(lambda source, *rest: rendered(env.from_string(source), *rest))
    for name, of in made["templates"].items():
        raised = sum(answer.startswith("raised") for answer in of["answers"])
        assert raised < CONVERSATIONS / 2, f"{name}: {raised} of {CONVERSATIONS} raise"
        print(f"{name}: {CONVERSATIONS - raised} texts, {raised} raised")
    if not check:
        (HERE / "rendered.json").write_text(json.dumps(made, ensure_ascii=False, indent=0) + "\n")
        return
    assert made == json.loads((HERE / "rendered.json").read_text()), "rendered.json differs"
    try:
        import transformers
    except ImportError:
        print("the same; transformers is not installed")
        return
    assert made == render_all(with_transformers), f"transformers {transformers.__version__} renders differently"
    print(f"the same, with transformers {transformers.__version__} too")


if __name__ == "__main__":
    main()
