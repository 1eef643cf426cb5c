"""How a setting that differs is told."""

from __future__ import annotations

import re

from merge.compare.settings import Change


def test_a_long_setting_is_cut_inside_its_quotes() -> None:
    told = Change("prompt_config.user", "{question} Think about it first. " * 3, ["a" * 90]).text

    assert re.fullmatch(r'prompt_config.user: "[^"]{55}\.\.\.", now \["a{54}\.\.\.\]', told)
