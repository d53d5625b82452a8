#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Records tests/wild/tokenizers/cases.json: folders of tokenizers as people have them, made of the small tokenizers in
tests/text/tokenizers and the oddities found in public ones, with the ids that transformers gives.

    pip install 'transformers<5' sentencepiece protobuf
    record_ids.py [OUT]

A case's folder has the files `copied` (name: file in tests/text/tokenizers), with the JSON patch `patch` of its
tokenizer.json, and the files `written`. Its texts are encoded as prompts that a template wrote, without tokens at the beginning.
"""

import base64
import json
import shutil
import sys
import tempfile
from pathlib import Path

import transformers

HERE = Path(__file__).resolve().parent
TOKENIZERS = HERE.parent.parent / "text" / "tokenizers"
CHATML = ["<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|> <|im_end|>a b", "no token, <|im_end"]
NAMES = {"<|im_end|>": 2500, "<|im_start|>": 2501}
MODEL = {"tokenizer.model": "sentencepiece/tokenizer.model"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
MAP = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>", "lstrip": False}, "additional_special_tokens": ["<|im_start|>"]}
PASSED = ["a<s> b</s>c", "<s>hi there</s> <s>", "<unk> a</s>  </s>b", "  <s>"]


def added(number, content, **marks):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True,
            "special": False, **marks}


def add(*tokens):
    return [{"op": "add", "path": "/added_tokens/-", "value": token} for token in tokens]


def json_of(name):
    return {"tokenizer.json": f"{name}/tokenizer.json"}


def tiktoken():
    return "".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))


def decoder(first, special):
    return {"added_tokens_decoder": {str(first + i): {"content": name, "lstrip": False, "rstrip": False, "single_word": False,
                                                      "normalized": not special, "special": special}
                                     for i, name in enumerate(NAMES)}}


NORMALIZED = [{"op": "replace", "path": f"/added_tokens/{i}/normalized", "value": True} for i in range(3)]
METASPACE = [{"op": "replace", "path": "/normalizer", "value": None},
             {"op": "replace", "path": "/pre_tokenizer",
              "value": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}}]
CASES = [
    ("ChatML in added_tokens.json, special in the map", MODEL, [],
     {"added_tokens.json": NAMES, "special_tokens_map.json": MAP, "tokenizer_config.json": LLAMA}, CHATML, False),
    ("ChatML in added_tokens.json alone", MODEL, [],
     {"added_tokens.json": {"<unk>": 0, "<s>": 1, "</s>": 2, **NAMES}, "tokenizer_config.json": LLAMA}, CHATML, False),
    ("ChatML without the spaces of old versions", MODEL, [],
     {"added_tokens.json": NAMES, "special_tokens_map.json": MAP, "tokenizer_config.json": {**LLAMA, "legacy": False}}, CHATML, False),
    ("a tokenizer.json beside a tokenizer.model", {**MODEL, **json_of("llama2")},
     add(added(2500, "<|im_end|>", normalized=False, special=True), added(2501, "<|im_start|>", normalized=False)),
     {"tokenizer_config.json": {**LLAMA, "tokenizer_class": "LlamaTokenizerFast"}}, CHATML, True),
    ("tokens of the config beside a tokenizer.json", json_of("llama2"), [],
     {"tokenizer_config.json": {**LLAMA, "tokenizer_class": "LlamaTokenizerFast", **decoder(2500, True)}}, CHATML, True),
    ("tokens of added_tokens.json beside a byte-level tokenizer.json", json_of("qwen2"), [],
     {"added_tokens.json": {"<|im_new|>": 3006, "<tool_call>": 3007}, "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}},
     ["<|im_new|>a<tool_call> b", "<|im_start|><|im_new|>"], True),
    ("special tokens marked as normalized, as Llama 2 had them", json_of("llama2"), NORMALIZED,
     {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}, PASSED, True),
    ("special tokens that are not normalized", json_of("llama2"), [],
     {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}, PASSED, True),
    ("a normalized token beside Prepend and Replace", json_of("llama2"),
     add(added(2500, "\u8c01"), added(2501, "two words"), added(2502, "<strip>", lstrip=True, rstrip=True), added(2503, "alone", single_word=True)),
     {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}},
     ["\u4f60\u662f\u8c01", "\u8c01", "a \u8c01 b", "\u8c01\u8c01 \u8c01", "two words", "x two words  two words", "a  <strip>  b<strip>",
      "alone alone2 alone", "all alone."], True),
    ("a normalized token beside Metaspace", json_of("llama2"), METASPACE + add(added(2500, "\u8c01"), added(2501, "two words")),
     {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}},
     ["\u4f60\u662f\u8c01", "\u8c01", "a \u8c01 b", "two words", "x two words  two words"], True),
    ("a normalized token beside NFC", json_of("qwen2"), add(added(3006, "e\u0301x"), added(3007, "\u00e9y")),
     {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}, ["\u00e9x e\u0301x", "e\u0301y \u00e9y"], True),
    ("a vocabulary of tiktoken beside a tokenizer.json", json_of("llama3"), [],
     {"tokenizer.model": tiktoken(), "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}},
     ["<|begin_of_text|>it's 12345<|eot_id|>"], True),
]


def patched(content, patch):
    for change in patch:
        *path, last = change["path"].split("/")[1:]
        place = content
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        if last == "-":
            place.append(change["value"])
        else:
            place[last] = change["value"]
    return content


def record(name, copied, patch, written, texts, fast):
    with tempfile.TemporaryDirectory() as folder:
        for file, source in copied.items():
            shutil.copy(TOKENIZERS / source, Path(folder) / file)
        path = Path(folder) / "tokenizer.json"
        if patch:
            path.write_text(json.dumps(patched(json.loads(path.read_text()), patch)))
        for file, content in written.items():
            (Path(folder) / file).write_text(content if isinstance(content, str) else json.dumps(content))
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": "llama"}))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=fast)
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    return {"name": name, "copied": copied, "patch": patch, "written": written, "texts": texts, "ids": ids}


def main(out=HERE / "cases.json"):
    cases = [record(*case) for case in CASES]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    Path(out).write_text(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
