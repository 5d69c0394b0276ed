"""The public fakes: a script on the command line."""

import json

import pytest

from multihop.errors import BadInput, LMError
from multihop.lms.base import Prompt, Request, complete
from multihop.testing import scripted_lm

RULE = {"prompt": "", "text": "Yes."}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"rules": [5]},
        {"rules": [{"prompt": ""}]},
        {"rules": [{"text": "Yes."}]},
        {"rules": [{"prompt": 5, "text": "Yes."}]},
        {"rules": [{"prompt": "(", "text": "Yes."}]},
        {"rules": [{"prompt": "", "text": None}]},
        {"rules": [{"prompt": "", "error": 5}]},
        *({"rules": [RULE], "pieces": pieces} for pieces in (-1, 1.5, float("inf"), "3", None)),
        *({"rules": [RULE], "delay": d} for d in (-1, float("nan"), float("inf"), "1", 10**400)),
    ],
)
def test_a_file_that_is_no_script_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match="not a script") as refused:
        scripted_lm(str(tmp_path / "s.json"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b""])
def test_a_file_that_is_no_json_is_no_script(content, tmp_path):
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(BadInput, match="not a script"):
        scripted_lm(str(tmp_path / "s.json"))


async def test_the_first_rule_that_matches_counts(tmp_path):
    rules = [
        {"prompt": "Fail", "error": "No."},
        {"prompt": "Q: .*A:$", "text": "One."},
        {"prompt": "", "text": ""},
    ]
    (tmp_path / "s.json").write_text(json.dumps({"rules": rules, "delay": 0.0, "pieces": 2}))
    lm = scripted_lm(str(tmp_path / "s.json"))
    assert (await complete(lm, Request(Prompt("Q: x\ny\nA:"), 9))).text == "One."
    assert (await complete(lm, Request(Prompt("other"), 9))).text == ""
    with pytest.raises(LMError, match="No"):
        await complete(lm, Request(Prompt("Fail"), 9))
