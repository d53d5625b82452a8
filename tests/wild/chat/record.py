#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Records what transformers makes of chat templates (needs transformers and jinja2; no weights, no PyTorch):
#
#   tests/wild/chat/record.py [FOLDER]     templates in FOLDER/templates/*.jinja, by default those beside this script
#
# writes FOLDER/expected.jsonl: a line for each template and each of the conversations in conversations.json, with the text, or the
# message with which the template or the interpreter refuses. wild_chat_test holds zero_generate's own texts against it, for another
# folder with ZERO_CHATS=FOLDER. Where transformers refuses by a message of Python or Jinja, that a conversation is refused counts, not
# its words: "refused" is then true, and "error" left out.
import datetime
import json
import pathlib
import sys

import jinja2
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class Friday(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 13, 5, 0)


def record(template, messages):
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=True, **TOKENS
        )
        return {"text": texts[0]}
    except jinja2.exceptions.UndefinedError as error:
        return {"error": str(error)}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error)} if raised else {"refused": True}
    except Exception:
        return {"refused": True}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    chat_template_utils.datetime = Friday
    conversations = json.loads((HERE / "conversations.json").read_text(encoding="utf-8"))
    with (folder / "expected.jsonl").open("w", encoding="utf-8", newline="\n") as out:
        for path in sorted((folder / "templates").glob("*.jinja")):
            with path.open(encoding="utf-8", newline="") as file:
                template = file.read()
            for number, messages in enumerate(conversations):
                line = {"template": path.name, "conversation": number} | record(template, messages)
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


main()
