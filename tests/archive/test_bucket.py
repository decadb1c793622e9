"""An archive in S3-compatible storage keeps the promises of one in a directory, whatever the storage answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from berth.cli.deployment.archive.bucket import Bucket, Credentials, Place, read_credentials
from berth.cli.deployment.archive.chains import find_allocation, judge
from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.running import Archived, Retention, run_archive
from migrations.roles import Role
from tests.archive.ended import age, archived_in, end_allocations, left_of, seeded_with, violations
from tests.archive.killing import killed_run
from tests.archive.s3_server import Fault, S3Server, running_s3
from tests.at_length import at_length
from tests.berth.commands import assert_one_sentence, berth
from tests.databases import as_role

KEY = "AKIDTEST"
SEALED = {CrashPoint.AFTER_MANIFEST, CrashPoint.BEFORE_DELETE_COMMIT}


@pytest.fixture
def s3() -> Iterator[S3Server]:
    """A running storage with the bucket `archive`."""
    with running_s3() as server:
        yield server


def bucket_of(s3: S3Server, bucket: str = "archive", secret: str | None = None, key: str = KEY) -> Bucket:
    """The prefix `berth/one` of a bucket."""
    credentials = Credentials(key, secret or s3.secrets[KEY])
    return Bucket(Place(bucket, "berth/one", "eu-1", s3.endpoint), credentials, retries=2, retry_seconds=5)


def run(url: str, bucket: Bucket) -> Archived:
    """Archive everything that ended."""
    return run_archive(as_role(url, Role.OPERATOR), bucket, Retention(0))


def settings_of(s3: S3Server) -> dict[str, str]:
    """The settings of the command."""
    return {
        "BERTH_ARCHIVE_S3_ENDPOINT": s3.endpoint,
        "BERTH_ARCHIVE_S3_ACCESS_KEY_ID": KEY,
        "BERTH_ARCHIVE_S3_SECRET_ACCESS_KEY": s3.secrets[KEY],
    }


@pytest.mark.full
def test_allocations_are_archived_read_and_continued(database_url: str, s3: S3Server) -> None:
    seeded, ended = seeded_with(database_url, 3)
    archive = bucket_of(s3)
    done = run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(0), allocations_max=1)
    assert (done.segments, done.deleted) == (3, 3)
    ended += end_allocations(database_url, seeded, 1)
    assert run(database_url, archive).deleted == 1
    judged = judge(archive)
    assert (judged.manifests, judged.allocations, judged.violations, judged.unsealed) == (4, 4, [], [])
    for one in ended:
        assert find_allocation(archive, str(one)) is not None
    assert all(name.startswith("berth/one/") for name in s3.buckets["archive"])
    assert violations(database_url) == {}


def test_names_with_every_character_are_signed_as_the_specification_says(s3: S3Server) -> None:
    archive, names = bucket_of(s3), [f"d/{mark}.json" for mark in "+ =~ä&%:"]
    for name in names:
        archive.write(name, name.encode())
    assert archive.names() == sorted(names)
    assert [archive.read(name).decode() for name in names] == names


def test_a_name_is_written_once_and_a_lost_answer_is_no_problem(s3: S3Server) -> None:
    archive = bucket_of(s3)
    lost: list[str] = []

    def lose_one(method: str, path: str) -> Fault | None:
        if method == "PUT" and path.endswith("1.json") and not lost:
            lost.append(path)
            return Fault.LOST
        return None

    s3.fault = lose_one
    archive.write("manifests/1.json", b"first")
    assert len(lost) == 1
    assert [path for method, path in s3.requests if method == "PUT" and path.endswith("1.json")] == lost * 2
    archive.write("manifests/1.json", b"first")
    with pytest.raises(ArchiveProblem, match="exists with other content") as refused:
        archive.write("manifests/1.json", b"second")
    assert refused.value.code == "archive_overtaken"
    assert archive.read("manifests/1.json") == b"first"


def _wrong_secret(s3: S3Server) -> Bucket:
    return bucket_of(s3, secret="another-secret")


def _unknown_key(s3: S3Server) -> Bucket:
    return bucket_of(s3, key="AKIDOTHER")


def _missing_bucket(s3: S3Server) -> Bucket:
    return bucket_of(s3, bucket="missing")


def _unavailable(s3: S3Server) -> Bucket:
    s3.fault = lambda _method, _path: Fault.UNAVAILABLE
    return bucket_of(s3)


def _full(s3: S3Server) -> Bucket:
    s3.fault = lambda method, _path: Fault.UNAVAILABLE if method == "PUT" else None
    return bucket_of(s3)


def _interrupted_segment(s3: S3Server) -> Bucket:
    s3.fault = lambda method, path: Fault.CUT if method == "PUT" and path.endswith(".gz") else None
    return bucket_of(s3)


def _interrupted_manifest(s3: S3Server) -> Bucket:
    s3.fault = lambda method, path: Fault.CUT if method == "PUT" and "/manifests/" in path else None
    return bucket_of(s3)


def _unconditional(s3: S3Server) -> Bucket:
    s3.ignores_conditions = True
    return bucket_of(s3)


FAILURES: dict[str, tuple[Callable[[S3Server], Bucket], str, str]] = {
    "a wrong secret": (_wrong_secret, "archive_unreadable", "answered 403 SignatureDoesNotMatch"),
    "an unknown access key": (_unknown_key, "archive_unreadable", "answered 403 InvalidAccessKeyId"),
    "a bucket that is missing": (_missing_bucket, "archive_unreadable", "answered 404 NoSuchBucket"),
    "503 for everything": (_unavailable, "archive_unreadable", "answered 503 SlowDown"),
    "503 for writes": (_full, "archive_not_written", "nothing was deleted for it: the storage answered 503 SlowDown"),
    "an upload that ends in the middle": (_interrupted_segment, "archive_not_written", "no answer"),
    "a manifest that ends in the middle": (_interrupted_manifest, "archive_not_written", "no answer"),
    "a store that ignores If-None-Match": (_unconditional, "archive_unsupported", "ignores If-None-Match"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_deletes_nothing_and_the_next_run_archives(database_url: str, s3: S3Server, name: str) -> None:
    seeded, _ = seeded_with(database_url, 1)
    assert seeded
    failing, code, words = FAILURES[name]
    with pytest.raises(ArchiveProblem, match=words) as refused:
        run(database_url, failing(s3))
    assert refused.value.code == code
    assert s3.secrets[KEY] not in str(refused.value)
    assert archived_in(database_url) == {}
    s3.fault, s3.ignores_conditions = (lambda _method, _path: None), False
    archive = bucket_of(s3)
    assert run(database_url, archive).deleted == 1
    judged = judge(archive)
    assert (judged.manifests, judged.allocations, judged.violations) == (1, 1, [])


def test_storage_that_fails_for_a_moment_is_tried_again(database_url: str, s3: S3Server) -> None:
    seeded_with(database_url, 1)
    seen: set[tuple[str, str]] = set()

    def first_time(method: str, path: str) -> Fault | None:
        new = (method, path) not in seen
        seen.add((method, path))
        return Fault.UNAVAILABLE if new else None

    s3.fault = first_time
    assert run(database_url, bucket_of(s3)).deleted == 1
    assert judge(bucket_of(s3)).violations == []


# Long. tests/archive/test_crashes.py kills the command that archives to a directory.
@pytest.mark.full
@pytest.mark.parametrize("point", at_length(CrashPoint, [CrashPoint.AFTER_MANIFEST]))
def test_nothing_is_lost_when_the_command_is_killed(database_url: str, s3: S3Server, point: CrashPoint) -> None:
    _, made = seeded_with(database_url, 2)
    ended = [age(database_url, one, 2) for one in made]
    archive = bucket_of(s3)
    killed_run(database_url, "s3://archive/berth/one", point, **settings_of(s3))
    for one in ended:
        assert left_of(database_url, one) != [] or find_allocation(archive, str(one)) is not None
    done = run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(1))
    assert done.resumed == (point in SEALED)
    assert sorted(archived_in(database_url)) == sorted(ended)
    judged = judge(archive)
    assert (judged.allocations, judged.repeated, judged.violations) == (2, 0, [])
    assert "archive" not in violations(database_url)


def test_a_second_run_does_not_replace_what_the_first_sealed(database_url: str, s3: S3Server) -> None:
    """The first run has lost its lock without noticing; both write the manifest of the same sequence."""
    _, (ended,) = seeded_with(database_url, 1)

    class Slow(Bucket):
        def write(self, name: str, content: bytes) -> None:
            if name.startswith("manifests/"):
                bucket_of(s3).write(name, b"the manifest of the other run")
            super().write(name, content)

    slow = Slow(Place("archive", "berth/one", "eu-1", s3.endpoint), Credentials(KEY, s3.secrets[KEY]))
    with pytest.raises(ArchiveProblem) as refused:
        run(database_url, slow)
    assert refused.value.code == "archive_overtaken"
    assert slow.read("manifests/000000000001.json") == b"the manifest of the other run"
    assert left_of(database_url, ended) != []


@pytest.mark.full
def test_an_operator_archives_to_a_bucket_and_no_secret_is_printed(
    database_url: str, s3: S3Server, tmp_path: Path
) -> None:
    _, made = seeded_with(database_url, 1)
    old = age(database_url, made[0], 401)
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {s3.secrets[KEY]}\n")
    by_file = {
        "BERTH_ARCHIVE_S3_ENDPOINT": s3.endpoint, "BERTH_ARCHIVE_S3_CREDENTIALS_FILE": str(file),
        # Variables of the AWS tools change nothing.
        "AWS_ACCESS_KEY_ID": "AKIDOTHER", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "y",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_SKIP_SIGNATURE": "true",
    }  # fmt: skip
    url = "s3://archive/berth/one"
    done = berth("archive", "run", "--to", url, "--output", "json", BERTH_DATABASE_URL=database_url, **by_file)
    assert json.loads(done.stdout)["deleted"] == 1, done.stderr
    shown = berth("archive", "show", url, "--allocation", str(old), **settings_of(s3))
    assert json.loads(shown.stdout)["rows"]["allocations"][0]["id"] == str(old)
    s3.buckets["archive"] = {name: content + b" " for name, content in s3.buckets["archive"].items()}
    damaged = berth("archive", "verify", url, **settings_of(s3))
    assert damaged.returncode == 1
    wrong = berth(
        "archive", "verify", url, **{**settings_of(s3), "BERTH_ARCHIVE_S3_SECRET_ACCESS_KEY": "guessed-secret"}
    )
    assert_one_sentence(wrong, 1, "answered 403 SignatureDoesNotMatch")
    for run_of in (done, shown, damaged, wrong):
        for secret in (s3.secrets[KEY], "guessed-secret"):
            assert secret not in run_of.stdout + run_of.stderr


USAGE: dict[str, tuple[str, dict[str, str], int, str]] = {
    "no bucket": ("s3://", {}, 2, "must look like s3://bucket/prefix"),
    "a prefix that climbs": ("s3://archive/../x", {}, 2, "must look like s3://bucket/prefix"),
    "another scheme": ("gs://archive", {}, 2, "is no directory and no s3://bucket/prefix"),
    "no credentials": ("s3://archive/x", {"BERTH_ARCHIVE_S3_ACCESS_KEY_ID": ""}, 1, "needs credentials"),
    "both kinds": ("s3://archive/x", {"BERTH_ARCHIVE_S3_CREDENTIALS_FILE": "f"}, 1, "needs credentials"),
    "plain http": ("s3://archive/x", {"BERTH_ARCHIVE_S3_ENDPOINT": "http://storage.example"}, 1, "unencrypted"),
    "no address": ("s3://archive/x", {"BERTH_ARCHIVE_S3_ENDPOINT": "storage"}, 1, "must look like https://"),
    "a password in it": (
        "s3://archive/x",
        {"BERTH_ARCHIVE_S3_ENDPOINT": "https://u:p@s"},
        1,
        "must look like https://",
    ),
}


@pytest.mark.quick("both kinds", "plain http")
@pytest.mark.parametrize("name", USAGE)
def test_what_does_not_fit_is_refused_before_anything_is_sent(s3: S3Server, name: str) -> None:
    address, settings, code, words = USAGE[name]
    refused = berth("archive", "verify", address, **{**settings_of(s3), **settings})
    assert_one_sentence(refused, code, words)
    assert s3.requests == []


@pytest.mark.parametrize(
    "content", ["", "[other]\naws_access_key_id = a", "[default]\naws_access_key_id = a", "no section"]
)
def test_a_file_without_credentials_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(content)
    with pytest.raises(ArchiveProblem, match=r"has no profile \[default\]") as refused:
        read_credentials(file)
    assert refused.value.code == "archive_credentials"
    with pytest.raises(ArchiveProblem, match="No such file"):
        read_credentials(tmp_path / "missing")


def test_credentials_are_not_in_their_text() -> None:
    assert "secret" not in repr(Credentials("key", "secret", "secret-token"))
