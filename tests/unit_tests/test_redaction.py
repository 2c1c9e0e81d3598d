"""What is sensitive is replaced; what isn't stays."""

# ruff: noqa: RUF001 - look-alikes are what it sees through

from __future__ import annotations

import base64
import builtins
import hashlib
import json
import pickle
import re
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_nanomem import NanomemError, Redaction, RedactionError, sensitive

ALNUM = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6k7L8m9N0"
HEX = hashlib.sha256(b"nothing").hexdigest()


def jwt(claims):
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    coded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*coded, ALNUM[:43]])


# In pieces, so that no scanner takes them for real.
SECRETS = {
    "aws": "AK" + "IA" + "ABCDEFGHIJ234567",
    "github": "gh" + "p_" + ALNUM[:36],
    "github_fine": "github" + "_pat_" + ALNUM[:22] + "_" + ALNUM[:59],
    "gitlab": "gl" + "pat-" + ALNUM[:20],
    "openai_legacy": "sk" + "-" + ALNUM[:20] + "T3Blbk" + "FJ" + ALNUM[:20],
    "openai_project": "sk" + "-proj-" + ALNUM[:30] + "-_" + "T3Blbk" + "FJ" + ALNUM[:40],
    "anthropic": "sk" + "-ant-api03-" + ALNUM[:80] + "-" + ALNUM[:10] + "AA",
    "deepseek": "sk" + "-" + HEX[:32],
    "langsmith": "lsv2" + "_pt_" + HEX[:32] + "_" + HEX[:10],
    "google": "AI" + "za" + ALNUM[:35],
    "hugging_face": "hf" + "_" + ALNUM[:34],
    "slack": "xo" + "xb-" + "123456789012-123456789012-" + ALNUM[:24],
    "slack_hook": "https://hooks.slack" + ".com/services/T0001/B0001/" + ALNUM[:24],
    "stripe": "sk" + "_live_" + ALNUM[:24],
    "stripe_long": "sk" + "_live_" + "51" + ALNUM[:75] + ALNUM[:22],
    "stripe_test": "rk" + "_test_" + ALNUM[:24],
    "jwt": jwt({"sub": "1234567890", "name": "Ann"}),
    "jwt_long": jwt({"sub": "1234567890", "groups": [HEX] * 80}),
    "azure": "Account" + "Key=" + ALNUM[:80] + "abcdef==",
    "npm": "npm" + "_" + ALNUM[:36],
    "pypi": "pypi" + "-AgEIcHlwaS5vcmc" + ALNUM,
    "twilio": "S" + "K" + HEX[:32],
    "sendgrid": "S" + "G." + ALNUM[:22] + "." + ALNUM[:43],
    "square": "sq0" + "csp-" + ALNUM[:43],
    "telegram": "123456789" + ":" + ALNUM[:35],
    "discord": "M" + ALNUM[:23] + "." + ALNUM[:6] + "." + ALNUM[:27],
    "mailchimp": HEX[:32] + "-us" + "12",
}
CARD = "4111 1111 1111 1111"
PEM = (
    "\n".join(
        ["-----BEGIN RSA PRIV" + "ATE KEY-----", ALNUM[:64], ALNUM[:32] + "==", "-----END RSA "]
    )
    + "PRIVATE KEY-----"
)
PLACES = [
    "{}",
    "my key is {} and it works",
    "{}.",
    '{{"key": "{}"}}',
    "`{}`",
    "**{}**",
    "KEY={}",
    "curl -H 'X-Key: {}' https://example.com",
    "第一行\n我的密钥是{}，请记住\nlast",
]
REDACTING = Redaction({"email": "redact", "credit_card": "redact", "secret": "redact"})
PROSE = [
    "",
    "The quick brown fox's secret is that it jumps; that's all.",
    "My password is wrong, and the token expired. The secret: practice every day.",
    "我的密码是什么？昨天我们讨论了令牌和密钥，他说：“口令是保密的”。",
    "On 2024-05-01T10:30:00Z, version 1.12.3-rc.1 of v2.0; see section 4.1.2.",
    "Commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b fixed it, 9f86d08 didn't.",
    "The id is 123e4567-e89b-12d3-a456-426614174000, the sum " + HEX,
    "Call +1 (555) 010-9999 or 0049 30 1234567 or 13800138000.",
    "Order 1234567890123456, weight 0.9468822170900693, time 1700000000.123456",
    "See https://example.com/docs?page=2#top, www.example.org and example.com/a.",
    "The server is 10.0.0.1, its card 00:1a:2b:3c:4d:5e.",
    'ChatOpenAI(api_key=os.environ["OPENAI_KEY_1"], max_tokens=4096, token=None)',
    "@ann said: a@b isn't an address, and 5 @ 3.50 is a price",
    "**[secret](page1.md)** and [REDACTED_EMAIL], [email:1a2b3c4d], [withheld: secret]",
    "sk-learn, task-force-of-twenty-people-or-more, risk-averse",
    "é è 日本語のテキスト 한국어 텍스트 ไทย 🙂👩‍👩‍👧",
]


def leaks(secret, output):
    return [secret[i : i + 4] for i in range(len(secret) - 3) if secret[i : i + 4] in output]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SECRETS)
def test_nothing_of_a_secret_is_left(name, place):
    """A secret goes as a whole, wherever it stands; what surrounds it stays."""
    assert Redaction().apply(place.format(SECRETS[name])) == place.format("[secret]")


@pytest.mark.parametrize("strategy", ["mask", "redact", "hash"])
@pytest.mark.parametrize("text", [PEM, PEM.replace("\n", "\\n"), "> " + PEM.replace("\n", "\n> ")])
def test_a_private_key_goes_with_all_its_lines(text, strategy):
    """A private key is one secret from its first line to its last, escaped or quoted too."""
    output = Redaction({"secret": strategy}).apply(f"before\n{text}\nafter")
    assert not leaks(ALNUM[:64], output)
    assert re.fullmatch(r"before\n(> )?\[[^\]]+\]\nafter", output)


def test_a_private_key_that_is_cut_off_goes_to_the_end():
    """Of a private key without an end nothing that follows is left."""
    cut = PEM.partition("-----END")[0]
    assert Redaction().apply(f"before\n{cut}") == "before\n[secret]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "https://bob:hunter22@db.example.com:5432/x",
            "https://bob:[secret]@db.example.com:5432/x",
        ),
        ("Authorization: Bearer " + ALNUM[:40], "Authorization: Bearer [secret]"),
        ("DB_PASSWORD=correcthorse\nHOME=/root", "DB_PASSWORD=[secret]\nHOME=/root"),
        ("GET /x?access_token=abcdefghi&b=2", "GET /x?access_token=[secret]&b=2"),
        ("my wifi password is hunter22.", "my wifi password is [secret]."),
        ("Passwort: P4ss$w*rt", "Passwort: [secret]"),
        ("我的密码是abc12345。", "我的密码是[secret]。"),
        ("password：ｈｕｎｔｅｒ２２", "password：[secret]"),
        ('password = "correct horse"', 'password = "[secret]"'),
        ('f(password="a b", api_key="c d")', 'f(password="[secret]", api_key="[secret]")'),
        (r'{"args": "{\"password\": \"hunter22\"}"}', r'{"args": "{\"password\": \"[secret]\"}"}'),
        ('password = "ann@example.com"', 'password = "[secret]"'),
    ],
)
def test_what_a_name_gives_away(text, expected):
    """A value goes when its name says that it is a secret, however it is assigned."""
    assert Redaction().apply(text) == expected


@pytest.mark.parametrize(
    ("kind", "value", "masked"),
    [
        ("email", "ann.lee@mail.example.com", "ann.lee@****.com"),
        ("credit_card", CARD, "**** **** **** 1111"),
        ("credit_card", CARD.replace(" ", ""), "************1111"),
        ("credit_card", CARD.replace(" ", "-"), "****-****-****-1111"),
        ("ip", "192.168.10.77", "*.*.*.77"),
        ("mac_address", "00:1a:2b:3c:4d:5e", "**:**:**:**:**:5e"),
        ("url", "https://example.com/a?b=c", "[url]"),
        ("secret", SECRETS["aws"], "[secret]"),
    ],
)
def test_each_kind_by_each_strategy(kind, value, masked):
    """A kind is masked, redacted, hashed or refused, whatever it is written amid."""
    for before, behind in ((" ", " "), ("联系", " 谢谢" if kind == "url" else "谢谢"), ('"', '"')):
        text = f"{before}{value}{behind}"

        def written(strategy, text=text):
            return Redaction({kind: strategy}).apply(text)

        assert written("mask") == f"{before}{masked}{behind}"
        assert written("redact") == f"{before}[REDACTED_{kind.upper()}]{behind}"
        assert re.fullmatch(
            rf"\[{kind}:[0-9a-f]{{8}}\]", written("hash")[len(before) : -len(behind)]
        )
        with pytest.raises(RedactionError) as raised:
            written("block")
        assert raised.value.kind == kind
        assert value not in str(raised.value)


@pytest.mark.parametrize("text", PROSE)
def test_ordinary_text_is_left_alone(text):
    """Prose, dates, hashes, versions and telephone numbers are the same object afterwards."""
    assert Redaction().apply(text) is text
    assert Redaction().withhold(text) is text


@pytest.mark.parametrize(
    "disguise",
    [
        "\u200b".join,
        lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
        lambda text: text.replace("-", "\u2010"),
        lambda text: "\ufeff" + text + "\u2060",
    ],
)
@pytest.mark.parametrize("plain", [*SECRETS.values(), CARD, "ann@example.com"])
def test_a_disguise_changes_nothing(plain, disguise):
    """Full-width letters, other dashes and invisible characters hide nothing."""
    output = REDACTING.apply(disguise(plain))
    assert re.fullmatch(r"\ufeff?\[REDACTED_[A-Z_]+\]\u2060?", output)


def test_digits_of_another_script_are_digits():
    """A card in Arabic digits is a card."""
    arabic = str.maketrans({str(digit): chr(0x660 + digit) for digit in range(10)})
    assert Redaction().apply(CARD.translate(arabic)) == "**** **** **** 1111"


def test_a_decimal_number_is_no_card():
    """Digits behind a decimal point are no card, whatever their checksum."""
    number = "0." + CARD.replace(" ", "")
    assert Redaction().apply(number) is number


def test_the_same_text_has_the_same_hash():
    """Hashes join what is the same, in disguise too, and need the key."""
    hashed = Redaction({"email": "hash"}, hash_key="key").apply("a@b.com b@b.com ａ@b.com")
    first, other, again = hashed.split()
    assert first == again != other
    assert Redaction({"email": "hash"}, hash_key=b"key").apply("a@b.com") == first
    assert Redaction({"email": "hash"}).apply("a@b.com") != first
    assert "key" not in repr(Redaction({"email": "hash"}, hash_key="key"))


def test_a_mask_shows_nothing_that_is_sensitive_itself():
    """What a mask would show is looked at as well."""
    assert Redaction().apply("4111111111111111@example.com") == "[credit_card]@****.com"
    assert Redaction().apply(SECRETS["aws"] + "@example.com") == "[secret]@example.com"


def test_the_longest_of_what_overlaps_gives_the_mark():
    """What overlaps is replaced once, by the kind of the longest."""
    custom = {"part": "cde", "whole": "bcdef", "tail": "fgh"}
    assert Redaction({}, custom).apply("abcdefghi") == "a[whole]i"
    url = "https://example.com/?q=ann@example.com"
    assert Redaction({"url": "redact", "email": "mask"}).apply(url) == "[REDACTED_URL]"


def test_withheld_lines_say_what_they_held():
    """Blocked lines are withheld, the others are redacted, and line ends stay."""
    redaction = Redaction({"secret": "block", "email": "mask"})
    text = f"one a@b.com\nkey {SECRETS['aws']} and {SECRETS['github']}\n\n{PEM} x\nlast\n"
    expected = "one a@****.com\n[withheld: secret]\n\n[withheld: secret]\nlast\n"
    assert redaction.withhold(text) == expected
    assert redaction.withhold(expected) is expected
    assert redaction.apply(expected) is expected


def test_blocking_goes_before_everything():
    """A text is refused even if another strategy would have taken the blocked part away."""
    redaction = Redaction({"url": "redact", "email": "block"})
    with pytest.raises(RedactionError, match="email"):
        redaction.apply("https://example.com/?q=ann@example.com")


def test_the_error_is_ours_and_a_value_error():
    """RedactionError is in both trees, survives pickling, and says what to do."""
    error = pickle.loads(pickle.dumps(RedactionError("secret")))
    assert isinstance(error, NanomemError)
    assert isinstance(error, ValueError)
    assert error.kind == "secret"
    assert "'block'" in str(error)


def test_detectors_of_ones_own():
    """Patterns and functions find kinds of one's own, by the default strategy or their own."""
    custom = {
        "phone": r"\+?\d[\d ]{6,}\d",
        "badge": re.compile("b-[0-9]+", re.IGNORECASE),
        "name": lambda text: [(m.start(), m.end()) for m in re.finditer("Ann", text)],
    }
    redaction = Redaction({"badge": "redact"}, custom, default="mask")
    assert redaction.apply("Ann, 555 0109 999, B-12, a@b.com") == (
        "[name], [phone], [REDACTED_BADGE], a@b.com"
    )
    assert redaction.apply("５５５０１０９９９９") == "[phone]"


def test_an_own_detector_takes_the_place_of_a_built_in_one():
    """A custom detector by a built-in name is the only one of that kind, and shows nothing."""
    redaction = Redaction({"email": "mask"}, {"email": r"\S+@corp"})
    assert redaction.apply("x@corp a@b.com") == "[email] a@b.com"


@pytest.mark.parametrize("pattern", [".", ".+", "", "x*", r"\[", "secret", r"[\s\S]+", r"\w+"])
def test_marks_are_not_found_again(pattern):
    """Whatever a detector finds, a mark is not part of it."""
    redaction = Redaction({"secret": "mask"}, {"own": pattern})
    once = redaction.apply(f"xx {SECRETS['aws']} [ ]\nyy")
    assert redaction.apply(once) is once
    assert not leaks(SECRETS["aws"], once)


def test_what_an_own_detector_raises_passes_through():
    """A detector's own error is not hidden, and neither is a place that the text doesn't have."""

    def broken(text):
        raise KeyError(text)

    with pytest.raises(KeyError):
        Redaction({}, {"own": broken}).apply("text")
    with pytest.raises(ValueError, match="4 characters"):
        Redaction({}, {"own": lambda _: [(2, 9)]}).apply("text")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": {"mail": "mask"}}, "'mail'.*email, credit_card, ip"),
        ({"kinds": {"email": "hide"}}, "'hide'.*mask, redact, hash, block"),
        ({"kinds": {}, "default": "hide"}, "'hide'"),
        ({"kinds": {}, "custom": {"a]": "x"}}, "letters"),
        ({"kinds": {}, "custom": {"own": "("}}, "own.*regular expression"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    """An unknown kind or strategy is told with the known ones."""
    with pytest.raises(ValueError, match=message):
        Redaction(**arguments)


@pytest.mark.parametrize(
    ("kind", "library"), [("email", "langchain"), ("secret", "detect_secrets")]
)
def test_a_missing_extra_is_named(monkeypatch, kind, library):
    """Without the libraries that it needs, a Redaction isn't made, and the extra is told."""

    def refuse(name, *args, **kwargs):
        if name.startswith(library):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    original = sensitive.importlib.import_module
    monkeypatch.setattr(sensitive.importlib, "import_module", refuse)
    sensitive.detector.cache_clear()
    with pytest.raises(ImportError, match=r"pip install .*langchain-nanomem\[redaction\]"):
        Redaction({kind: "mask"})
    Redaction({}, {"own": "x"})
    sensitive.detector.cache_clear()


def test_the_libraries_are_imported_only_when_needed():
    """Importing the package imports neither library."""
    code = (
        "import sys, langchain_nanomem\n"
        "langchain_nanomem.Redaction({}, {'own': 'x'}).apply('x')\n"
        "assert not {'detect_secrets', 'langchain'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_fingerprint_tells_settings_apart():
    """Equal settings have one fingerprint, in any process; others have others."""
    made = [
        Redaction(),
        Redaction({"email": "mask"}),
        Redaction({"email": "hash"}),
        Redaction({"email": "hash"}, hash_key="a"),
        Redaction({}, {"own": "a"}),
        Redaction({}, {"own": "b"}),
        Redaction({}, {"own": "a"}, default="hash"),
        Redaction({}, {"own": leaks}),
        Redaction(sessions=True),
    ]
    assert len({redaction.fingerprint() for redaction in made}) == len(made)
    shuffled = Redaction({"secret": "mask", "credit_card": "mask", "email": "mask"})
    code = "import langchain_nanomem as n; print(n.Redaction().fingerprint())"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert shuffled.fingerprint() == made[0].fingerprint() == elsewhere.stdout.strip()


def test_settings_are_a_value():
    """A Redaction is equal to its like, hashable, picklable, and unmoved by its arguments."""
    kinds = {"email": "mask"}
    redaction = Redaction(kinds)
    redaction.apply("a@b.com")
    kinds["secret"] = "block"
    assert redaction == Redaction({"email": "mask"})
    assert hash(redaction) == hash(Redaction({"email": "mask"}))
    assert pickle.loads(pickle.dumps(redaction)) == redaction


def test_no_network_is_used(monkeypatch):
    """Nothing is verified: no socket is opened, and no file."""

    def refuse(*args, **kwargs):
        raise AssertionError(args)

    redaction = Redaction()
    monkeypatch.setattr("socket.socket", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    assert redaction.apply(" ".join(SECRETS.values())).startswith("[secret]")


def test_threads_share_a_redaction():
    """Several threads at once find the same."""
    text = "\n".join([*SECRETS.values(), *PROSE, CARD]) * 3
    expected = Redaction().apply(text)
    sensitive.detector.cache_clear()
    outputs = []

    def work():
        outputs.append(Redaction().apply(text))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == [expected] * 8


@pytest.mark.parametrize("before", [3500, 3580, 3590, 4000, 4090, 4096, 8000])
@pytest.mark.parametrize("plain", [SECRETS["aws"], "ann@example.com", CARD, SECRETS["jwt_long"]])
def test_a_long_line_is_searched_throughout(before, plain):
    """What stands where a long line is cut is found, once."""
    padding = "word " * (before // 5) + "w" * (before % 5)
    for text in (f"{padding} {plain} {padding}", f"{padding}x/{plain} {padding}"):
        output = REDACTING.apply(text)
        assert output.count("[REDACTED_") == 1
        assert len(re.sub(r"\[REDACTED_\w+\]", "", output)) <= len(text) - len(plain)


@pytest.mark.parametrize(
    "part", ["sk-", "eyJ.", "://a:", "//", "a.", "secret: '", "@a.", "-----BEGIN "]
)
def test_a_long_text_is_no_trap(part):
    """A long text made of beginnings alone comes to an end."""
    once = Redaction().apply(part * 8000)
    assert Redaction().apply(once) is once


WORDS = st.one_of(
    st.sampled_from(["[secret]", "[email:1a2b3c4d]", "[withheld: secret]", "[REDACTED_URL]"]),
    st.sampled_from(["password=", 'secret: "', "token", "://u:", "@", "https://e.com/", "\u200b"]),
    st.sampled_from(["a@b.com", "1.2.3.4", "00:1a:2b:3c:4d:5e", "4111", "密码", "own", "eyJ", "="]),
    st.sampled_from([" ", "\n", "-", ".", "'", '"', "[", "]", "\\"]),
    st.text(max_size=5),
)
SENSITIVE = st.sampled_from([*SECRETS.values(), PEM, PEM[:60], PEM[-30:], CARD])
TEXTS = st.lists(WORDS | SENSITIVE, max_size=12).map("".join)
SURROUNDINGS = st.lists(WORDS, max_size=8).map("".join)
STRATEGIES = st.sampled_from(["mask", "redact", "hash"])
SETTINGS = st.dictionaries(st.sampled_from(sensitive.KINDS), STRATEGIES, min_size=1)


@settings(max_examples=300, deadline=None)
@given(TEXTS, SETTINGS, st.sampled_from([{}, {"own": r"own|\d{4}|\*+"}]))
def test_once_is_enough(text, kinds, custom):
    """A text that was redacted is not changed again, and no detector finds any more in it."""
    redaction = Redaction(kinds, custom)
    once = redaction.apply(text)
    assert redaction.apply(once) is once
    assert redaction.withhold(once) is once
    refusing = Redaction(dict.fromkeys(kinds, "block"), custom, default="block")
    assert refusing.apply(once) is once


@settings(max_examples=200, deadline=None)
@given(SURROUNDINGS, st.sampled_from(list(SECRETS.values())), SURROUNDINGS)
def test_a_secret_between_words_is_never_left(before, secret, behind):
    """Whatever stands around it, nothing of a secret is in the output."""
    text = f"{before} {secret} {behind}"
    assert secret[-20:] not in Redaction().apply(text)
    blocking = Redaction({"secret": "block"})
    assert secret[-20:] not in blocking.withhold(text)
    with pytest.raises(RedactionError):
        blocking.apply(text)
