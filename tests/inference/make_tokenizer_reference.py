#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/text/tokenizers: small tokenizers with the patterns and settings of GPT-2, Llama 3, Qwen2 and Llama 2,
10,000 lines in many scripts, and of each line and tokenizer a hash of the ids that Hugging Face's `tokenizers` and
Google's `sentencepiece` give.

    pip install tokenizers sentencepiece
    make_tokenizer_reference.py OUT TEXT...      TEXT: what the tokenizers are trained on, of any kind and language

Each hash is FNV-1a, 64 bits, over the ids as little-endian u32: those of the line as a user's words, 0xffffffff, those of
the line as a prompt that a template wrote (special tokens are found) with the tokens that begin a text.
"""

import io
import json
import random
import re
import struct
import sys
import unicodedata
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 20
LINES = 10_000
WORDS_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS_QWEN2 = WORDS_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<s>", "</s>", "<mask>",
            "<tool>", "<word>", "<|end_of", "<0x41>", "<unk>"]
BLOCKS = [
    (0x20, 0x7E), (0xA1, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF),
    (0x531, 0x58F), (0x591, 0x5F4), (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF),
    (0xE01, 0xE5B), (0xF00, 0xFDA), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137C), (0x1780, 0x17F9),
    (0x1820, 0x18AA), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x2000, 0x206F), (0x2070, 0x20BF), (0x2150, 0x218B),
    (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2580, 0x27BF), (0x3001, 0x303F), (0x3041, 0x30FF), (0x3131, 0x318E),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAD9), (0xFB00, 0xFB4F), (0xFE20, 0xFE2F), (0xFF01, 0xFFEF),
    (0x10330, 0x1034A), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF)]
DIGITS = [0x30, 0x660, 0x6F0, 0x966, 0xE50, 0xFF10, 0x1D7CE]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\u00a0", "\u3000", "\u2009", "\u0085", "\u200b", "\v", "\f",
          "\u2028", "\u180e", "        ", "\r", "\n \n"]
EMOJI = ["\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F3F3\uFE0F\u200D\U0001F308", "\U0001F44D\U0001F3FD",
         "\U0001F1E9\U0001F1EA", "\u2764\uFE0F", "1\uFE0F\u20E3"]
CODE = ["for (int i = 0; i < n; ++i) {", "def f(x):\n    return x**2", "a->b::c", "#include <vector>", "x += 0x1F;", "// '''",
        "if x==y: y='s'", "https://a.example/b?c=d&e=1", "{\"key\": [1, 2.5e-3]}", "\\p{L}+", "$100,000.00", "it's I'LL we'VE '\u017f",
        "e\u0301 \u212b a\u0328\u0301 \u1100\u1161\u11a8", "\u2581a \u2581", "<|", "|>"]


def characters():
    """Of each block the characters that this Python's Unicode has (Python 3.11: 14), as PCRE2 10.42's."""
    return [[chr(c) for c in range(first, last + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
            for first, last in BLOCKS]


def make_lines(words):
    rng = random.Random(SEED)
    blocks = characters()

    def part():
        kind = rng.randrange(20)
        if kind < 7:
            return rng.choice(words)
        if kind < 12:
            block = rng.choice(blocks)
            return "".join(rng.choice(block) for _ in range(rng.randint(1, 6)))
        if kind < 13:
            zero = rng.choice(DIGITS)
            return "".join(chr(zero + rng.randrange(10)) for _ in range(rng.randint(1, 8)))
        if kind < 15:
            return rng.choice(SPACES) * rng.randint(1, 3)
        if kind < 16:
            return rng.choice(EMOJI)
        if kind < 18:
            return rng.choice(CODE)
        if kind < 19:
            return rng.choice(SPECIALS)
        return "".join(chr(rng.choice([0x300, 0x301, 0x308, 0x323, 0x327, 0x5B0, 0x64B, 0x93C, 0x3099]))
                       for _ in range(rng.randint(1, 3)))

    lines = []
    while len(lines) < LINES:
        line = "".join(part() + rng.choice(["", "", " ", " ", ", "]) for _ in range(rng.randint(1, 8)))
        lines.append(line[:rng.randint(20, 48)] if rng.randrange(4) else line[:10])
    return lines


def byte_level(vocabulary, texts, pattern, specials):
    tokenizer = Tokenizer(models.BPE())
    steps = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(specials)
    return tokenizer


def make_gpt2(texts):
    return byte_level(2500, texts, None, ["<|endoftext|>"])


def make_llama3(texts):
    tokenizer = byte_level(3000, texts, WORDS_LLAMA3, [])
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    vocabulary = content["model"]["vocab"]
    for word in ["Ġinformationless", "chromatic", "Ġunreachable", "Ã©tat", "ĠÐ¼Ð¸ÑĢ", "ing's"]:  # no merges lead to them
        vocabulary.setdefault(word, len(vocabulary))
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def make_qwen2(texts):
    tokenizer = byte_level(3000, texts, WORDS_QWEN2, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<word>", single_word=True, normalized=True)])
    return tokenizer


def make_sentencepiece(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=2500, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, character_coverage=0.995,
        allow_whitespace_only_pieces=True, minloglevel=2, num_threads=1)
    return model.getvalue()


def make_llama2(processor):
    """The tokenizer.json that Llama 2's folder has beside its SentencePiece model."""
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece, i in ids.items():
        if processor.is_byte(i) or processor.is_control(i) or processor.is_unknown(i):
            continue
        pairs = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in ids and piece[k:] in ids]
        merges += [(i, sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]])))]
    merges = [pair for _, pairs in sorted(merges, key=lambda merge: merge[0]) for pair in pairs]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def compact(tokenizer, old_merges=False):
    content = json.loads(tokenizer.to_str())
    if old_merges:  # as files before 2024 are
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        del content["model"]["type"]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def hash_of(ids):
    value = 0xCBF29CE484222325
    for byte in struct.pack(f"<{len(ids)}I", *ids):
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def both(tokenizer, line):
    tokenizer.encode_special_tokens = True
    words = tokenizer.encode(line, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    return words, tokenizer.encode(line).ids


def both_sentencepiece(processor, line):
    """With special tokens as LlamaTokenizer's with `legacy`: each part between them is a text of its own."""
    prompt = [1]
    for part in re.split("(<s>|</s>)", line):
        prompt += [processor.piece_to_id(part)] if part in ("<s>", "</s>") else processor.encode(part)
    return processor.encode(line), prompt


def main(out, *names):
    out = Path(out)
    texts = [line + "\n" for name in names for line in Path(name).read_text(errors="ignore").split("\n") if line][:400_000]
    rng = random.Random(SEED)
    texts = rng.sample(texts, min(len(texts), 60_000))
    made = {"gpt2": make_gpt2(texts), "llama3": make_llama3(texts), "qwen2": make_qwen2(texts)}
    words = sorted({word for text in texts for word in text.split() if len(word) <= 12})
    lines = make_lines(rng.sample(words, 20_000))
    out.mkdir(parents=True, exist_ok=True)
    (out / "lines.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    model = make_sentencepiece([text.strip() for text in texts])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    made["llama2"] = make_llama2(processor)
    for name, tokenizer in made.items():
        (out / name).mkdir(exist_ok=True)
        (out / name / "tokenizer.json").write_text(compact(tokenizer, old_merges=name == "gpt2"))
    (out / "sentencepiece").mkdir(exist_ok=True)
    (out / "sentencepiece" / "tokenizer.model").write_bytes(model)
    encoders = {name: lambda line, tokenizer=tokenizer: both(tokenizer, line) for name, tokenizer in made.items()}
    encoders["sentencepiece"] = lambda line: both_sentencepiece(processor, line)
    for name, encode in encoders.items():
        hashes = []
        for line in lines:
            words, prompt = encode(line)
            hashes.append(hash_of([*words, 0xFFFFFFFF, *prompt]))
        (out / name / "ids.bin").write_bytes(struct.pack(f"<{len(hashes)}Q", *hashes))


if __name__ == "__main__":
    main(*sys.argv[1:])
