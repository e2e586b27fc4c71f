"""Questions of servers, with the server's name added."""

import json

import pytest

from portico.core.catalog.attributed_questions import named, named_result
from portico.core.model.methods import SAMPLE
from portico.core.protocol.eras import members


@pytest.mark.parametrize("scope", [rb'"allServers"', rb'"\u0061llServers"', rb'"all\u0053ervers"'])
def test_a_server_cannot_sample_with_the_context_of_others(scope: bytes) -> None:
    shown = named(SAMPLE, members(b'{"messages":[],"includeContext":%b}' % scope), "weather")
    assert json.loads(bytes(shown["includeContext"])) == "thisServer"


def test_a_question_whose_key_is_escaped_is_named_too() -> None:
    question = {"method": "elicitation/create", "params": {"message": "PIN?"}}
    result = json.dumps({"resultType": "input_required", "inputRequests": {"a": question}})
    escaped = result.replace("inputRequests", r"\u0069nputRequests").encode()
    shown = json.loads(named_result(escaped, "weather"))
    assert shown["inputRequests"]["a"]["params"]["message"] == "[weather] PIN?"


def test_labels_of_a_form_show_all_characters_and_cannot_pass_for_another_server() -> None:
    form = {
        "type": "object",
        "properties": {
            "pin": {"type": "string", "title": "[github] PIN\u202e", "description": "a\n [bank] b"},
            "title": {"type": "string", "enum": ["x"], "enumNames": ["[mail] x\u200b"]},
            "pick": {"oneOf": [{"const": "[c]\u200b", "title": "[bank] yes"}]},
            "wide": {"type": "string", "title": "\uff3bgithub\uff3d PIN"},
            "thick": {"type": "string", "title": "\u3010github\u3011 PIN"},
            "plain": {"type": "string", "title": "(optional) PIN"},
            "empty": {"type": "string", "title": " ", "description": "\ufb00 \u3220"},
        },
        "required": ["pin"],
    }
    params = members(json.dumps({"message": "Hi", "requestedSchema": form}).encode())
    shown = json.loads(bytes(named("elicitation/create", params, "weather")["requestedSchema"]))
    pin, title, pick = (shown["properties"][key] for key in ("pin", "title", "pick"))
    assert pin["title"] == "[weather] [github] PIN\\u{202e}"
    assert pin["description"] == "a\n[weather]  [bank] b"
    assert title["enumNames"] == ["[weather] [mail] x\\u{200b}"]
    assert title["enum"] == ["x"]
    assert pick["oneOf"] == [{"const": "[c]\u200b", "title": "[weather] [bank] yes"}]
    assert shown["required"] == ["pin"]
    titles = [shown["properties"][key]["title"] for key in ("wide", "thick", "plain")]
    assert titles == [
        "[weather] \uff3bgithub\uff3d PIN",
        "[weather] \u3010github\u3011 PIN",
        "(optional) PIN",
    ]
