"""A conformance set for JSON, written for this project: texts with the verdict RFC 8259 (or our ruling) gives.

Each text is bytes and its verdict None (valid) or the reason it is rejected for. What the standard leaves open is in
`UNDECIDED`, with our ruling. The texts are grouped by the part of the grammar they try.
"""

from __future__ import annotations

from spark_batch.outcome import Reason
from tests.spark.json_texts_bad import BAD_SCALARS, BAD_STRINGS, BAD_STRINGS_MORE, BAD_STRUCTURE, BAD_UTF8

DEPTH_MAX = 500
_BAD = Reason.MALFORMED_JSON

_VALID_STRUCTURE = rb"""
{}
[]
[[]]
[{}]
{"":0}
{"a":{}}
{"a":[]}
{"a":1,"b":2}
{"a":1,"A":2}
{"a":{"a":{"a":1}}}
[1,2,3]
[1,"a",null,true,false,{},[]]
[[1],[2]]
 {}
{ "a" : 1 , "b" : [ 1 , 2 ] }
{"a":[{"a":1},{"a":2}]}
{"$insert_id":"x"}
{"a.b":1,"a":{"b":2}}
{"__proto__":1}
{"a b":1}
{"\u0061":1,"b":2}
{"a\"b":1}
{"a\\b":1}
{"e":"\u00e9","\u00e9":"e"}
"""

_VALID_SCALARS = rb"""
0
-0
1
-1
123456789
9223372036854775807
-9223372036854775808
9223372036854775808
18446744073709551616
100000000000000000000000000000000000000000
0.0
-0.0
0.1
1.0
-1.5
123.456
0.000000000000000000000000000001
3.141592653589793238462643383279
1e0
1E0
1e5
1E5
1e+5
1e-5
1.5e10
1.5E+10
1.5E-10
0e0
0E+0
0e-1
-0e1
1e400
-1e400
1e-400
123e65
true
false
null
""
"a"
"a b"
" "
"0"
"null"
"true"
"{}"
"[1]"
"//"
"/* */"
"'"
"#"
"a/b"
"""

_VALID_STRINGS = rb"""
"\""
"\\"
"\/"
"\b"
"\f"
"\n"
"\r"
"\t"
"\b\f\n\r\t\"\\\/"
"\u0000"
"\u001f"
"\u0020"
"\u0022"
"\u005c"
"\u002f"
"\u007f"
"\u0080"
"\u00e9"
"\u00E9"
"\u2028"
"\u2029"
"\u20ac"
"\uabcd"
"\uABCD"
"\ud7ff"
"\ue000"
"\uf8ff"
"\ufeff"
"\ufffd"
"\ufffe"
"\uffff"
"\ud834\udd1e"
"\uD834\uDD1E"
"\ud83d\ude00"
"\uD83D\ude00"
"\ud800\udc00"
"\udbff\udfff"
"\ud83d\ude00\ud83d\ude00"
"x\ud83d\ude00y"
"\\ud800"
"\\\\ud800"
"\\uD83D"
"\\u12"
"\\n"
"C:\\users\\udo"
"\\\ud83d\ude00"
"\u0061\u0062"
"\u005cud800"
"\u0022\u005c"
"""

_VALID_BYTES = [
    b'"\xc2\x80"',
    b'"\xc3\xa9"',
    b'"\xdf\xbf"',
    b'"\xe0\xa0\x80"',
    b'"\xe2\x80\xa8"',
    b'"\xe2\x80\xa9"',
    b'"\xe2\x82\xac"',
    b'"\xed\x9f\xbf"',
    b'"\xee\x80\x80"',
    b'"\xef\xbb\xbf"',
    b'"\xef\xbf\xbd"',
    b'"\xef\xbf\xbf"',
    b'"\xf0\x90\x80\x80"',
    b'"\xf0\x9f\x98\x80"',
    b'"\xf4\x8f\xbf\xbf"',
    b'"\x7f"',
    b'{"\xc3\xa9t\xc3\xa9":"\xe2\x82\xac"}',
    b"\t{}",
    b"{} ",
    b"\n{}",
    b"\r{}",
    b"{}\n",
    b"{}\r\n",
    b"\r\n\t {\r\n\t }\r\n\t ",
    b'{\n"a"\n:\n1\n}',
    b"[\t1\t,\t2\t]",
    b'"' + b"a" * 5000 + b'"',
    b'{"' + b"k" * 5000 + b'":1}',
    b"[" + b",".join([b"1"] * 2000) + b"]",
    b"1" + b"0" * 900,
    b"0." + b"1" * 900,
    b"1" + b"0" * 1500,
    b"0." + b"1" * 1500,
    b'"' + b"[" * 1200 + b'"',
    b'"' + b'\\"[{' * 800 + b'"',
]

_TWICE = rb"""
{"a":1,"a":1}
{"a":1,"a":2}
{"a":1,"b":2,"a":3}
{"a":{"b":1,"b":2}}
[{"a":1,"a":2}]
{"a":1,"\u0061":2}
{"\u00e9":1,"\u00E9":2}
{"":1,"":2}
{"a":[{"b":[{"c":1,"c":2}]}]}
{"a":null,"a":null}
{"a/b":1,"a\/b":2}
{"x":1,"y":{"z":1,"z":1},"w":2}
"""

_LONE = rb"""
"\ud800"
"\udbff"
"\udc00"
"\udfff"
"\uD800"
"\uDFFF"
"a\ud800b"
"\ud800\ud800"
"\udc00\ud800"
"\ud800\n"
"\ud800\u0041"
"\ud83d\\ude00"
"\\ud83d\ude00"
"\ud83dx\ude00"
"\ud83d\ude00\ud83d"
"\ude00\ud83d\ude00"
["\ud800"]
{"\ud800":1}
{"a":"\udfff"}
{"a":{"b":["\ud900"]}}
"""

UNDECIDED: list[tuple[bytes, Reason | None, str]] = [
    (b"\xef\xbb\xbf{}", _BAD, "a byte order mark is refused"),
    (b"\xef\xbb\xbf", _BAD, "a byte order mark alone is no JSON"),
    (b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, None, "nesting up to the limit is accepted"),
    (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), Reason.TOO_DEEP, "nesting beyond the limit is refused"),
    (b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX, None, "objects count as arrays do"),
    (b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1), Reason.TOO_DEEP, "objects count as arrays do"),
    (b"[" * 200 + b"]" * 200, None, "200 levels are well inside"),
    (b"[" * 5000 + b"]" * 5000, Reason.TOO_DEEP, "however deep"),
    (b"[" * 100_000, Reason.TOO_DEEP, "the limit is reached before the end is missed"),
    (b"[[]," * 600 + b"[]" + b"]" * 600, Reason.TOO_DEEP, "width does not hide depth"),
    (b"[" + b"[]," * 600 + b"[]]", None, "width is not depth"),
    (b"1e999999999", None, "a number's size is a matter of the contract, not of JSON"),
    (b"-1E+999999999", None, "likewise"),
    (b"1e-999999999", None, "likewise"),
    (b"1" * 5000, None, "likewise, however many digits"),
    (b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(3000)) + b"}", None, "no limit on keys but the size"),
]


def _lines(block: bytes) -> list[bytes]:
    return [line for line in block.strip(b"\n").split(b"\n") if line]


def texts() -> list[tuple[bytes, Reason | None]]:
    """Every text of the set with its verdict."""
    valid = [*map(_lines, (_VALID_STRUCTURE, _VALID_SCALARS, _VALID_STRINGS)), _VALID_BYTES]
    bad = [*map(_lines, (BAD_STRUCTURE, BAD_SCALARS, BAD_STRINGS)), BAD_STRINGS_MORE]
    found: list[tuple[bytes, Reason | None]] = [(text, None) for group in valid for text in group]
    found += [(text, _BAD) for group in bad for text in group]
    found += [(text, Reason.INVALID_UTF8) for text in BAD_UTF8]
    found += [(text, Reason.DUPLICATE_KEY) for text in _lines(_TWICE)]
    found += [(text, Reason.LONE_SURROGATE) for text in _lines(_LONE)]
    return found + [(text, verdict) for text, verdict, _ in UNDECIDED]
