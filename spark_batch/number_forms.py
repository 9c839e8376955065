"""Single numbers and booleans as Kafka's own serializers write them: big-endian, without any frame.

The classes are those of `org.apache.kafka.connect.converters` (Integer, Long, Short, Float, Double and Boolean) of
Kafka 4.1, above the serializers of `org.apache.kafka.common.serialization`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from spark_batch.avro_types import AvroType, JsonValue, Narrow, Primitive
from spark_batch.literals.floating import floating, floating_text
from spark_batch.literals.reading import Number

CLASSES = "org.apache.kafka.connect.converters."


@dataclass(frozen=True)
class NumberForm:
    """What one converter writes and reads."""

    word: str
    """As `ConverterKind` has it; the classes of Kafka begin with it."""
    type: AvroType
    """The only type it writes, as Connect sees types."""
    connect_type: str
    """The same in Connect's schemas."""
    avro: str
    """The same as the Avro schema of what it reads, which may be null."""
    layout: str
    """For `struct`, and for NumPy."""

    @property
    def size_bytes(self) -> int:
        """How long every value is."""
        return struct.calcsize(self.layout)

    @property
    def class_name(self) -> str:
        """Kafka's converter."""
        return f"{CLASSES}{self.word.capitalize()}Converter"

    @property
    def deserializer(self) -> str:
        """As Kafka's reasons name it: two of the classes leave their own name out."""
        is_nameless = self.type in {Primitive.FLOAT, Primitive.DOUBLE}
        return "Deserializer" if is_nameless else f"{self.word.capitalize()}Deserializer"

    def written(self, value: JsonValue) -> bytes | None:
        """The bytes of a canonical value of the type; null stays null."""
        if value is None:
            return None
        if self.type in {Primitive.FLOAT, Primitive.DOUBLE}:
            return struct.pack(self.layout, floating(self.type, value))
        return struct.pack(self.layout, int(value))

    def json_text(self, data: bytes) -> str:
        """Bytes of the right length as JsonConverter writes what they mean."""
        (value,) = struct.unpack(self.layout, data)
        if self.type is Primitive.BOOLEAN:
            return "true" if value else "false"
        if self.type not in {Primitive.FLOAT, Primitive.DOUBLE}:
            return str(value)
        text = floating_text(self.type, Number(repr(value)))
        return text if math.isfinite(value) else f'"{text}"'


NUMBER_FORMS = {
    form.word: form
    for form in (
        NumberForm("integer", Primitive.INT, "int32", '["null","int"]', ">i"),
        NumberForm("long", Primitive.LONG, "int64", '["null","long"]', ">q"),
        NumberForm("short", Narrow(16), "int16", '["null",{"type":"int","connect.type":"int16"}]', ">h"),
        NumberForm("float", Primitive.FLOAT, "float", '["null","float"]', ">f"),
        NumberForm("double", Primitive.DOUBLE, "double", '["null","double"]', ">d"),
        NumberForm("boolean", Primitive.BOOLEAN, "boolean", '["null","boolean"]', ">b"),
    )
}
"""By the word of their `ConverterKind`."""
