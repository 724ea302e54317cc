# SPDX-License-Identifier: Apache-2.0
"""Prose and code without end, to train tokenizers with and to measure them on: made from the word lists below and from
syllables, the same text for the same seed. A few words are frequent and most are rare, as in any text (Zipf)."""

from text_random import SplitMix64

NOUNS = (
    "water channel wheel gate mill river pump valve pipe tank stream flow level pressure engine model layer weight "
    "token prompt answer question memory device host cache block page copy transfer budget plan schedule graph kernel "
    "thread batch request sequence length window head value key row column table index file folder line word letter "
    "number name time day night morning year hour second minute place house road bridge field stone wood iron glass "
    "paper book story reader writer child friend family people city village country island mountain valley forest "
    "garden bird horse fish machine program compiler function variable pointer vector buffer range offset error "
    "message test result measure figure reason rule order limit bound cost price share part whole half end beginning "
    "side edge corner centre").split()
VERBS = (
    "brings takes gives holds keeps moves carries opens closes fills empties turns stops begins ends waits reads "
    "writes copies sends receives counts measures compares chooses plans builds runs starts finishes allocates frees "
    "loads stores computes returns calls checks finds loses shows hides grows shrinks rises falls remembers "
    "forgets").split()
ADJECTIVES = (
    "small large long short fast slow cold warm old new early late high low deep shallow narrow wide empty full quiet "
    "loud simple difficult exact random second first last next previous local remote resident offloaded").split()
SMALL = "the a of to in and is for that it with as on by at from or not be this are was but which one all so if".split()
NAMES = "Anna Jonas María José Zoë François Müller Øystein Łukasz Nguyễn O'Neill McDonald Headrace GPU CPU HTTP".split()
OTHERS = {
    "german": "das Wasser fließt durch den Kanal und treibt die Mühle über größere Räder an weil es muß".split(),
    "french": "l'eau coule à travers le canal où elle entraîne déjà la roue du moulin près de l'île français".split(),
    "spanish": "¿dónde está el agua? ¡mañana corre más rápido por la acequia del señor y también aquí!".split(),
    "polish": "woda płynie kanałem młyńskim zanim koło będzie jej potrzebować dzięki źródłom na górze".split(),
    "turkish": "su çarka ihtiyaç duymadan önce kanaldan gelir İstanbul ığdır değirmen öğle güneş".split(),
    "russian": "вода течёт по каналу и вращает колесо мельницы прежде чем оно понадобится ещё раз объём".split(),
    "greek": "το νερό κυλάει στο κανάλι πριν το χρειαστεί ο τροχός του μύλου και γυρίζει ξανά".split(),
    "hebrew": "המים זורמים בתעלה לפני שהגלגל צריך אותם".split(),
    "arabic": "يجري الماء في القناة قبل أن تحتاج إليه العجلة".split(),
    "hindi": "पहिये को ज़रूरत होने से पहले पानी नहर में बहता है".split(),
    "thai": "น้ำไหลผ่านคลองก่อนที่กังหันจะต้องการ".split(),
    "chinese": "水流过渠道，在水车需要之前到达。 模型的权重也是这样。 我们测量时间和长度。".split(),
    "japanese": "水車が必要とする前に、水路は水を運ぶ。 メモリより大きいモデルを動かす。".split(),
    "korean": "물레방아가 필요로 하기 전에 수로가 물을 나른다. 모델은 메모리보다 크다.".split(),
    "emoji": "😀 🎉 👍🏽 👩‍💻 ❤️ 🇩🇪 🌊 🚀".split(),
}
LATIN = ("german", "french", "spanish", "polish", "turkish")
ONSETS = "b br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sl st str t th tr v w z".split()
VOWELS = "a e i o u ai ea ee io ou".split()
CODAS = ["", "", "", "n", "r", "s", "t", "l", "nd", "ng", "st", "ck", "m"]
ENDINGS = ["", "", "", "ing", "ed", "s", "ness", "able", "ly", "er", "ation"]


class Corpus:
    """`languages`: which of OTHERS occur; about one sentence in six is theirs."""

    def __init__(self, seed, languages=tuple(OTHERS)):
        self.rng = SplitMix64(seed)
        self.languages = languages
        self.rare = [self.new_word() for _ in range(6000)]

    def pick(self, items):
        return items[self.rng.below(len(items))]

    def zipf(self, items):
        """An item, the first ones far oftener."""
        bound = 1 << self.rng.below(len(items).bit_length() + 1)
        return items[self.rng.below(min(bound, len(items)))]

    def new_word(self):
        word = "".join(self.pick(ONSETS) + self.pick(VOWELS) + self.pick(CODAS) for _ in range(1 + self.rng.below(3)))
        return word + self.pick(ENDINGS)

    def number(self):
        return self.pick([
            str(self.rng.below(10)), str(self.rng.below(2100)), f"{self.rng.below(1000)}.{self.rng.below(100)}",
            f"{1 + self.rng.below(99)},{self.rng.below(1000):03}", f"{self.rng.below(100)}%"])

    def word(self):
        kind = self.rng.below(20)
        if kind < 7:
            return self.zipf(SMALL)
        if kind < 11:
            return self.zipf(NOUNS)
        if kind < 13:
            return self.zipf(VERBS)
        if kind < 15:
            return self.zipf(ADJECTIVES)
        if kind < 18:
            return self.zipf(self.rare)
        return self.pick([
            self.pick(NAMES), self.number(), self.zipf(NOUNS) + "'s", "it's", "don't", "we'll", "they're"])

    def sentence(self):
        if self.languages and self.rng.below(6) == 0:
            words = OTHERS[self.pick(self.languages)]
            start = self.rng.below(len(words))
            return " ".join(words[start:] + words[:start]) + self.pick([".", "!", "?", "…"])
        words = [self.word() for _ in range(4 + self.rng.below(16))]
        words[0] = words[0][:1].upper() + words[0][1:]
        if len(words) > 8:
            middle = 3 + self.rng.below(len(words) - 6)
            words[middle] += self.pick([",", ",", ";", ":", " -", " ("]) if self.rng.below(4) else ","
        return " ".join(words) + self.pick([".", ".", ".", "?", "!", ")"])

    def paragraph(self):
        return " ".join(self.sentence() for _ in range(2 + self.rng.below(6))) + "\n\n"

    def identifier(self):
        first, second = self.zipf(NOUNS), self.zipf(NOUNS)
        return self.pick([
            first, first + second.capitalize(), f"{first}_{second}", first.capitalize() + second.capitalize(),
            f"k{first.capitalize()}", first[0], "i", "n"])

    def expression(self):
        a, b = self.identifier(), self.identifier()
        return self.pick([
            a, f"{a} + {b}", f"{a}[{b}]", f"{a}({b}, {self.rng.below(100)})", f"{a}.{b}()", f"{a}->{b}",
            f"{self.rng.below(4096)} * {a}", f"0x{self.rng.below(65536):04X}", f'"{self.zipf(NOUNS)} %d\\n"',
            f"std::max<int64_t>({a}, {b})", f"{a} <= {b} && !{b}", f"{a}[{b} - 1:]"])

    def cpp(self):
        lines = [f"// {self.sentence()}",
                 f"int64_t {self.identifier()}(const std::vector<int64_t> &{self.identifier()}) {{"]
        for _ in range(1 + self.rng.below(4)):
            lines.append(self.pick([
                f"  auto {self.identifier()} = {self.expression()};",
                f"  for (size_t i = 0; i < {self.identifier()}.size(); ++i)\n"
                f"    {self.identifier()} += {self.expression()};",
                f"  if ({self.expression()} == {self.expression()}) {{\n    return {self.expression()};\n  }}"]))
        return "\n".join(lines + [f"  return {self.expression()};", "}", "", ""])

    def python(self):
        lines = [f"def {self.identifier()}({self.identifier()}, {self.identifier()}=None):",
                 f'    """{self.sentence()}"""']
        for _ in range(1 + self.rng.below(4)):
            lines.append(self.pick([
                f"    {self.identifier()} = {self.expression()}",
                f"    for {self.identifier()} in range({self.rng.below(64)}):\n        print({self.expression()})",
                f"    if not {self.identifier()}:\n\t\traise ValueError(f\"{{{self.identifier()}}}\")"]))
        return "\n".join(lines + [f"    return {self.expression()}", "", ""])

    def markdown(self):
        items = "".join(f"{self.pick(['- ', '* ', f'{n + 1}. '])}{self.sentence()}\n" for n in range(self.rng.below(5)))
        return f"## {self.sentence()}\n\n{items}\n"

    def text(self, size):
        """At least `size` characters, cut after the last whole piece; half of it prose, half code."""
        pieces, length = [], 0
        while length < size:
            piece = self.pick([self.paragraph, self.paragraph, self.cpp, self.python, self.markdown])()
            pieces.append(piece)
            length += len(piece)
        return "".join(pieces)
