"""What a rule of a contract may say: the functions, node types and types of casts that are let through.

A rule comes from whoever may write a connector's config, and that person is not the operating-system user of the
worker. Everything that is not named here is refused: what reads files or addresses, runs code or programs, asks for the
session, aggregates, makes much out of little (``repeat``, ``sequence``), or takes more than linear time (Java's regular
expressions, ``levenshtein``). Names are Spark 4.1's, see https://spark.apache.org/docs/4.1.1/api/sql/.
"""

from __future__ import annotations

TEXT_CHARACTERS_MAX = 16_384
"""Longest rule."""
BRACKETS_MAX = 400
"""Opening brackets in a rule; Spark's parser goes one deeper into its stack for each."""
CASES_MAX = 40
"""The word ``case`` in a rule: the time in which Spark's parser reads one in the other grows with the square."""
NODES_MAX = 2_000
DEPTH_MAX = 100
RULES_MAX = 256
"""Rules of one contract."""
GROWTH_MAX = 16
"""How many times the size of the record a value in a rule may have."""
PATTERN_STEPS_MAX = 1_024
"""RE2's instructions for one pattern: each character of a text costs so many steps at most."""
SCALE_MAX = 38
"""Most digits that ``round`` and its like may be asked for, as many as a decimal has."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MATHS = """
    abs acos acosh asin asinh atan atan2 atanh bit_count bit_get bround cbrt ceil ceiling cos cosh cot degrees e exp
    expm1 factorial floor getbit greatest hypot isnan least ln log log10 log1p log2 mod nanvl negative pi pmod positive
    pow power radians rint round shiftleft shiftright sign signum sin sinh sqrt tan tanh try_add try_divide try_mod
    try_multiply try_subtract width_bucket
"""
_CONDITIONS = """
    between coalesce if ifnull isnotnull isnull nullif nullifzero nvl nvl2 raise_error zeroifnull
"""
_TEXTS = """
    ascii bit_length btrim char char_length character_length chr concat contains crc32 endswith get_json_object hash
    initcap instr is_valid_utf8 json_array_length lcase left len length locate lower ltrim luhn_check md5 octet_length
    parse_url position replace reverse right rtrim sha sha1 sha2 split split_part startswith substr substring
    substring_index translate trim try_parse_url ucase upper xxhash64
    ilike like regexp regexp_like rlike
"""
_INSTANTS = """
    add_months current_date current_timestamp date_add date_diff date_format date_from_unix_date date_part date_sub
    date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime hour last_day
    localtimestamp make_date minute month monthname months_between next_day now quarter second timestamp_micros
    timestamp_millis timestamp_seconds to_date to_timestamp to_unix_timestamp trunc try_to_date try_to_timestamp
    unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
"""
_COLLECTIONS = """
    array array_compact array_contains array_distinct array_max array_min array_position array_remove array_size
    array_sort arrays_overlap cardinality element_at exists filter flatten forall get map_contains_key map_entries
    map_keys map_values size slice sort_array transform try_element_at
"""
FUNCTIONS = _names(f"{_MATHS} {_CONDITIONS} {_TEXTS} {_INSTANTS} {_COLLECTIONS}")
"""Functions by their names in lower case; operators and ``cast`` are node types."""
FUNCTIONS_BY_KIND = {
    "conditions": sorted(_CONDITIONS.split()),
    "numbers": sorted(_MATHS.split()),
    "texts": sorted(_TEXTS.split()),
    "dates and instants": sorted(_INSTANTS.split()),
    "arrays and maps": sorted(_COLLECTIONS.split()),
}

ONE_COLUMN = _names("""
    btrim ltrim rtrim trim translate replace contains instr locate position split split_part substring_index
    round bround ceil ceiling floor date_format date_trunc trunc to_date to_timestamp to_unix_timestamp try_to_date
    try_to_timestamp unix_timestamp from_unixtime get_json_object parse_url try_parse_url
""")
"""All arguments but one must be written out: with two columns these take the product of their sizes in time, or read a
format anew for each record."""
SCALED = frozenset({"round", "bround", "ceil", "ceiling", "floor"})
OVER_ITEMS = frozenset({"exists", "filter", "forall", "transform"})
"""Functions with a lambda, over one array."""
HASHED_ITEMS = frozenset({"array_distinct", "arrays_overlap"})
"""Linear only where Spark can hash the items, which it does for numbers, texts, booleans and instants."""
REGEX_FUNCTIONS = frozenset({"regexp", "regexp_like", "rlike"})
LIKE_FUNCTIONS = frozenset({"ilike", "like"})
OF_THE_CLOCK = frozenset({"current_date", "current_timestamp", "localtimestamp"})
"""Names without brackets that mean functions where no field has them."""

_EXPRESSION_NODES = _names("""
    Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat Divide EqualNullSafe EqualTo GreaterThan
    GreaterThanOrEqual ILike In IntegralDivide IsNotNull IsNull LambdaFunction LessThan LessThanOrEqual Like Literal
    Multiply Not Or RLike Remainder ShiftLeft ShiftRight StringLocate StringTrim StringTrimLeft StringTrimRight
    Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnresolvedNamedLambdaVariable
""")
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
NODES = {f"{_EXPRESSIONS}{name}": name for name in sorted(_EXPRESSION_NODES)} | {
    f"{_ANALYSIS}{name}": name for name in ("UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction")
}
"""Classes of the parsed tree, and the short names that `Node.kind` has."""
WORDS_OF_NODES = {
    "ScalarSubquery": "a subquery",
    "Exists": "a subquery",
    "InSubquery": "a subquery",
    "ListQuery": "a subquery",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER(…)",
    "NamedArgumentExpression": "an argument by name (=>)",
    "NamedParameter": "a parameter (:name)",
    "PosParameter": "a parameter (?)",
    "WindowExpression": "a window (OVER)",
    "AggregateExpression": "an aggregate",
    "UnresolvedStar": "a star (*)",
    "UnresolvedRegex": "a name that is an expression",
    "Alias": "a name for the result (AS)",
    "Collate": "COLLATE",
    "LikeAny": "LIKE ANY",
    "LikeAll": "LIKE ALL",
    "NotLikeAny": "NOT LIKE ANY",
    "NotLikeAll": "NOT LIKE ALL",
}
"""What a refused class is called where SQL calls it otherwise."""
CAST_TYPES = _names("""
    boolean tinyint smallint int bigint float double string binary date timestamp timestamp_ntz
""")
"""Types that a rule may cast to. No decimals: from a text such as ``1e-999999999`` Spark makes a number of a billion
digits first."""
