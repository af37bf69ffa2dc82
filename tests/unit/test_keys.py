"""A node's keys, and the folder that keeps them from others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from protocol.errors import ConfigError, KeyFileError
from protocol.home import (
    Home,
    find_home,
    find_join,
    holder_of,
    locked,
    private_folder,
    read_private,
    write_private,
)
from protocol.joinstring import JoinString
from protocol.transport.keys import held_identity, load_identity, new_identity
from protocol.wire.messages import Epoch, View
from protocol.wire.signing import Purpose, open_view, seal_view, sign, verify

JOIN = JoinString("10.0.0.5", 7733, b"c" * 32, b"s" * 32, b"t" * 16)
OTHER = JoinString("10.0.0.6", 7733, b"c" * 32, b"s" * 32, b"t" * 16)


# -- identities ------------------------------------------------------------------------------


def test_our_link_keys_are_zeromqs() -> None:
    identity = new_identity()
    secret = z85.encode(identity.curve_secret)
    assert z85.decode(zmq.curve_public(secret)) == identity.curve_public


def test_an_identity_is_made_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "shard3.key"
    identity = load_identity(path)
    assert load_identity(path) == identity
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_secrets_do_not_show_in_a_log() -> None:
    assert "secret" not in repr(new_identity())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_keys_that_others_can_reach_are_refused_with_the_mend(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.key"
    load_identity(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"others can read .*{mode:04o}") as caught:
        load_identity(path)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"format": "kinfolk-key-1", "curve_secret": "AAAA", "sign_secret": "AAAA"}',
        b'{"format": "kinfolk-key-1", "curve_secret": 7, "sign_secret": 8}',
        b'{"format": "kinfolk-key-1", "curve_secret": "!", "sign_secret": "!"}',
    ],
)
def test_a_torn_key_file_is_told_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.key"
    write_private(path, content)
    with pytest.raises(KeyFileError, match="is torn or not one of Kinfolk's"):
        load_identity(path)
    assert path.read_bytes() == content


def test_a_key_file_of_another_format_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    write_private(path, json.dumps({"format": "kinfolk-key-9"}).encode())
    with pytest.raises(KeyFileError, match="format 'kinfolk-key-9', known is 'kinfolk-key-1'"):
        load_identity(path)


def test_an_identity_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "shard3.key"
    hold = (
        "import sys; from pathlib import Path; from protocol.transport.keys import held_identity\n"
        f"with held_identity(Path({str(path)!r}), what='x'): print('held'); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        fault = f"a peer named shard3 is already running on .*, pid {other.pid}"
        with (
            pytest.raises(ConfigError, match=fault),
            held_identity(path, what="a peer named shard3"),
        ):
            pass
        assert (holder_of(tmp_path / "shard3.lock") or "").endswith(f"pid {other.pid}")
        other.kill()
    with held_identity(path, what="a peer named shard3") as identity:  # the kernel let go of it
        assert identity == load_identity(path)


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", what="x"):
        assert holder_of(tmp_path / "lock") == f"{os.uname().nodename}, pid {os.getpid()}"
    assert holder_of(tmp_path / "lock") is None
    assert holder_of(tmp_path / "no lock") is None


# -- signatures --------------------------------------------------------------------------------


def test_a_signature_is_worth_something_for_its_purpose_its_bytes_and_its_key() -> None:
    ours, theirs = new_identity(), new_identity()
    signature = sign(ours.sign_secret, Purpose.VIEW, b"body")
    assert verify(ours.sign_public, Purpose.VIEW, b"body", signature)
    assert not verify(ours.sign_public, Purpose.SNAPSHOT, b"body", signature)
    assert not verify(ours.sign_public, Purpose.VIEW, b"bodY", signature)
    assert not verify(theirs.sign_public, Purpose.VIEW, b"body", signature)
    assert not verify(ours.sign_public, Purpose.VIEW, b"body", signature[:-1])
    assert not verify(b"short", Purpose.VIEW, b"body", signature)


def test_a_view_is_read_back_by_who_knows_the_coordinators_key() -> None:
    ours = new_identity()
    view = View(b"r" * 16, "run", Epoch(1, 2), 2, (), ())
    assert open_view(seal_view(view, ours.sign_secret), ours.sign_public).view == view


# -- the person's folder -----------------------------------------------------------------------


def test_the_folder_is_where_the_environment_says() -> None:
    assert find_home({"KINFOLK_HOME": "/x/y"}).root == Path("/x/y")
    assert find_home({"KINFOLK_HOME": "~/y"}).root == Path("~/y").expanduser()
    assert find_home({}).root == Path("~/.kinfolk").expanduser()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KeyFileError, match="others can write to the folder") as caught:
        private_folder(tmp_path)
    assert caught.value.hint == f"chmod 700 {tmp_path}"


def test_a_private_file_that_is_missing_or_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        read_private(tmp_path / "x")
    with pytest.raises(KeyFileError, match="cannot be read: Is a directory"):
        read_private(tmp_path)
    write_private(tmp_path / "long", bytes(65537))
    with pytest.raises(KeyFileError, match="is over 65536 bytes"):
        read_private(tmp_path / "long")


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_private(tmp_path / "x", b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(tmp_path / "x", b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_a_join_string_is_looked_for_in_four_places_in_order(tmp_path: Path) -> None:
    environ = {"KINFOLK_HOME": str(tmp_path)}
    home = Home(tmp_path)
    with pytest.raises(ConfigError, match="no join string: none in --join or") as caught:
        find_join(None, environ)
    assert "peer join STRING" in caught.value.hint
    write_private(home.local_join, str(OTHER).encode())
    assert find_join(None, environ).source == str(home.local_join)
    write_private(home.stored_join, str(JOIN).encode())
    assert find_join(None, environ).join == JOIN
    assert find_join(None, environ | {"KINFOLK_JOIN": str(OTHER)}).source == "$KINFOLK_JOIN"
    assert find_join(str(JOIN), environ | {"KINFOLK_JOIN": str(OTHER)}).source == "--join"


def test_a_torn_join_string_is_told_with_its_file(tmp_path: Path) -> None:
    write_private(tmp_path / "join", str(JOIN)[:-1].encode())
    with pytest.raises(ConfigError, match=f"{tmp_path}/join: the join string is torn"):
        find_join(None, {"KINFOLK_HOME": str(tmp_path)})
