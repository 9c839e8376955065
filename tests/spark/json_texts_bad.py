"""Texts of the conformance set that are no JSON, by the part of the grammar they break; see `json_texts`."""

from __future__ import annotations

BAD_STRUCTURE = rb"""
{
}
[
]
[1
[1,
[1,]
[,1]
[,]
[1,,2]
[1 2]
[1}
[1]]
[1]1
{]
{}}
{"a"
{"a":
{"a":1
{"a":1,
{"a":1,}
{,"a":1}
{,}
{"a"}
{"a",1}
{"a":1:2}
{"a"::1}
{"a":1 "b":2}
{"a":1,,"b":2}
{"a":}
{:1}
{"a":1]
{1:2}
{a:1}
{null:1}
{true:1}
{'a':1}
{"a":'1'}
{"a" "b"}
{"a"=1}
{"a":1;"b":2}
{[1]:2}
{{}:1}
{}{}
{} {}
{}[]
[][]
[],[]
{},{}
{"a":1}{"a":2}
{"a":1},{"a":2}
{"a":1}x
x{"a":1}
{"a":1},
,{"a":1}
{"a":1}]
]{"a":1}
{"a":1}],[{"b":2}
{}]}
{"a":1}}
{"a":1}/
{"a":1}#
{"a":1}//x
{"a":1}/*x*/
/*x*/{"a":1}
{/*x*/"a":1}
{"a":1//x
#{}
[1]#
({})
<null>
{"a":b}
[a]
"""

BAD_SCALARS = rb"""
+1
.5
-.5
5.
-5.
1.e5
1.e
00
01
-01
-00
007
0x1
0xFF
0b1
1e
1e+
1e-
1E
1ee5
1e5.5
1.2.3
1-
--1
-
+
1+1
1_000
1,000
1a
0a
1f
1d
1L
-a
- 1
1 .5
1. 5
1e 5
NaN
-NaN
nan
Infinity
-Infinity
+Infinity
inf
INF
-INF
undefined
None
True
False
TRUE
NULL
Null
nul
nulll
null1
tru
truee
fals
falsey
true false
nullnull
1 2
"a" "b"
"a""b"
"a"1
1"a"
a
abc
'a'
''
`a`
"""

BAD_STRINGS = rb"""
"
"a
a"
"""
BAD_STRINGS_MORE = [
    b'"""',
    b'"\\"',
    b'"\\',
    b'"\\x41"',
    b'"\\a"',
    b'"\\v"',
    b'"\\0"',
    b'"\\\'"',
    b'"\\U0041"',
    b'"\\u"',
    b'"\\u1"',
    b'"\\u12"',
    b'"\\u123"',
    b'"\\u123g"',
    b'"\\u 123"',
    b'"\\u+123"',
    b'"\\u-123"',
    b'"\\u{41}"',
    b'"\\ud83d\\u"',
    b'"\\ud83d\\ude0"',
    b'"\\ "',
    b'"\\\n"',
    b'"\x00"',
    b'"\x01"',
    b'"\x08"',
    b'"\t"',
    b'"\n"',
    b'"\r"',
    b'"\x1b"',
    b'"\x1f"',
    b'{"\n":1}',
    b'{"a\tb":1}',
    b"\x00",
    b"{}\x00",
    b"\x00{}",
    b"\x0b{}",
    b"\x0c{}",
    b"{}\x0c",
    b"\xc2\xa0{}",
    b"{}\xc2\xa0",
    b"\xe2\x80\xa8{}",
    b"{}\xe2\x80\xa8",
    b"\xe2\x80\x8b{}",
    b"\xe2\x80\x9ca\xe2\x80\x9d",
    b"\xef\xbc\x91",
    b"\xd9\xa1",
    b"[1\xe2\x81\xa02]",
    b"",
    b" ",
    b"\n\r\t ",
]

BAD_UTF8 = [
    b'"\x80"',
    b'"\xbf"',
    b'"\xc0\x80"',
    b'"\xc0\xaf"',
    b'"\xc1\xbf"',
    b'"\xc3"',
    b'"\xc3("',
    b'"\xe0\x80\x80"',
    b'"\xe0\x9f\xbf"',
    b'"\xe2\x82"',
    b'"\xe2("',
    b'"\xed\xa0\x80"',
    b'"\xed\xbf\xbf"',
    b'"\xed\xa0\xbd\xed\xb8\x80"',
    b'"\xf0\x80\x80\x80"',
    b'"\xf0\x9f\x98"',
    b'"\xf4\x90\x80\x80"',
    b'"\xf5\x80\x80\x80"',
    b'"\xf8\x88\x80\x80\x80"',
    b'"\xfe"',
    b'"\xff"',
    b'{"\xff":1}',
    b"\xff{}",
    b"{}\xff",
    b"\xff\xfe{\x00}\x00",
    b"\xfe\xff\x00{\x00}",
    b'"caf\xe9"',
]
