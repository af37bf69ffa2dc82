import re

import pytest

from protocol.errors import ConfigError
from protocol.joinstring import JoinString

JOIN = JoinString("10.0.0.5", 7733, b"c" * 32, b"s" * 32, b"t" * 16)
WORD = str(JOIN)


def test_a_join_string_is_one_word_that_no_shell_touches() -> None:
    assert re.fullmatch(r"kinfolk1:10\.0\.0\.5:7733:[A-Za-z0-9_-]{112}", WORD)


@pytest.mark.parametrize("host", ["10.0.0.5", "lab.example.org", "fe80::1", "fe80::1%eth0", "::1"])
def test_a_join_string_is_read_back_as_it_was_written(host: str) -> None:
    join = JoinString(host, 65535, b"\xff" * 32, b"\x00" * 32, b"\xfb" * 16)
    assert JoinString.parse(f"  {join}\n") == join


def test_an_ipv6_host_may_have_brackets() -> None:
    join = JoinString("fe80::1", 7733, b"c" * 32, b"s" * 32, b"t" * 16)
    assert JoinString.parse(str(join).replace("fe80::1", "[fe80::1]")) == join
    assert join.address == "tcp://[fe80::1]:7733"


def test_the_token_does_not_show_in_a_log() -> None:
    assert "token" not in repr(JOIN)


TORN = [
    (WORD[:-1], r"part of it is missing \(111 of 112 characters"),
    (WORD[:40], "part of it is missing"),
    (WORD + "A", "it is too long"),
    (WORD[:20], "torn: it ends too early"),
    ("kinfolk1:", "torn: it ends too early"),
    (WORD.replace("7733", "7734"), "the checksum does not fit"),
    (WORD.replace("10.0.0.5", "10.0.0.6"), "the checksum does not fit"),
    (WORD[:-1] + ("A" if WORD[-1] != "A" else "B"), "the checksum does not fit"),
    (WORD[:-2] + "!!", "characters that do not belong there"),
    (WORD[:-2] + "éé", "characters that do not belong there"),
    (WORD.replace(":7733:", ":\N{ARABIC-INDIC DIGIT ONE}:"), "ends too early"),
    (WORD.replace("kinfolk1", "kinfolk2"), "of another version: kinfolk2, not kinfolk1"),
    ("", "'' is not a join string: one starts with kinfolk1:"),
    ("tcp://10.0.0.5:7733", "'tcp://10.0.0.5:7733' is not a join string"),
    ("x" * 1000, r"'x{24}\.\.\.' is not a join string"),
]


@pytest.mark.parametrize(("word", "fault"), TORN, ids=[fault for _, fault in TORN])
def test_a_torn_join_string_is_told_with_what_is_wrong(word: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        JoinString.parse(word)
    assert "copy the whole line" in caught.value.hint


@pytest.mark.parametrize("host", ["", "a b", "a;b", "$(x)", "h" * 101])
def test_a_host_that_a_shell_would_touch_cannot_stand_in_one(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot stand in a join string"):
        JoinString(host, 7733, b"c" * 32, b"s" * 32, b"t" * 16)


@pytest.mark.parametrize("port", [0, 65536, -1])
def test_a_port_is_a_port(port: int) -> None:
    with pytest.raises(ConfigError, match="the port must be in"):
        JoinString("h", port, b"c" * 32, b"s" * 32, b"t" * 16)


def test_a_port_out_of_range_with_a_fitting_checksum_is_refused() -> None:
    with pytest.raises(ConfigError, match="torn"):
        JoinString.parse(WORD.replace(":7733:", ":99999:"))
