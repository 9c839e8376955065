import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Takes records through Kafka Connect's own transformations: a request a line on stdin, its answer a line on stdout. */
@SuppressWarnings({"unchecked", "rawtypes", "deprecation"})
public class Transforms {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final SimpleHeaderConverter SIMPLE = new SimpleHeaderConverter();

    private static final JsonConverter ENVELOPES = new JsonConverter();

    static {
        ENVELOPES.configure(Map.of("schemas.enable", "true"), false);
    }

    /** One transformation, and for which records. */
    private record Step(Transformation made, Predicate predicate, boolean negate) { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answered(JSON.readTree(line))));
        }
    }

    private static JsonNode answered(JsonNode request) throws Exception {
        if (request.has("texts")) {
            return read(request.get("texts"));
        }
        if (request.has("converter")) {
            return converted(request);
        }
        ArrayNode found = JSON.createArrayNode();
        List<Step> chain = new ArrayList<>();
        try {
            for (JsonNode step : request.get("chain")) {
                chain.add(step(step));
            }
        } catch (Exception error) {
            return JSON.createObjectNode().put("refused", error.toString());
        }
        JsonConverter keys = converter(request, true);
        JsonConverter values = converter(request, false);
        HeaderConverter headers;
        try {
            headers = headerConverter(request);
        } catch (Exception error) {
            return JSON.createObjectNode().put("refused", error.toString());
        }
        for (JsonNode record : request.get("records")) {
            try {
                found.add(record(request, record, chain, keys, values, headers));
            } catch (Exception error) {
                found.addObject().put("refusal", error.toString());
            }
        }
        return found;
    }

    /** What SimpleHeaderConverter reads in texts: its own text of it, and JsonConverter's, null where that fails. */
    private static ArrayNode read(JsonNode texts) throws Exception {
        ArrayNode found = JSON.createArrayNode();
        for (JsonNode text : texts) {
            SchemaAndValue value = SIMPLE.toConnectHeader("t", "h", text.binaryValue());
            ArrayNode both = found.addArray();
            if (value == null) {
                both.add((byte[]) null).add((byte[]) null);
                continue;
            }
            both.add(SIMPLE.fromConnectHeader("t", "h", value.schema(), value.value()));
            try {
                both.add(ENVELOPES.fromConnectData("t", value.schema(), value.value()));
            } catch (Exception error) {
                both.add("refused");
            }
        }
        return found;
    }

    /** What a converter reads in bytes, as JsonConverter's envelopes, or what it writes of envelopes; or why not. */
    private static ArrayNode converted(JsonNode request) throws Exception {
        Converter converter = made(request.get("converter").asText());
        converter.configure(Map.of(), false);
        boolean isRead = request.get("is_read").asBoolean();
        Converter from = isRead ? converter : ENVELOPES;
        Converter to = isRead ? ENVELOPES : converter;
        ArrayNode found = JSON.createArrayNode();
        for (JsonNode data : request.get("data")) {
            try {
                SchemaAndValue value = from.toConnectData("t", bytes(data));
                byte[] converted = to.fromConnectData("t", value.schema(), value.value());
                found.addObject().put("data", converted);
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                found.addObject().put("refusal", cause.getMessage());
            }
        }
        return found;
    }

    private static JsonConverter converter(JsonNode request, boolean isKey) {
        JsonConverter made = new JsonConverter();
        Map<String, String> config = new HashMap<>();
        config.put("schemas.enable", request.get("has_schemas").asText());
        config.put("replace.null.with.default", request.get("is_null_defaulted").asText());
        made.configure(config, isKey);
        return made;
    }

    private static HeaderConverter headerConverter(JsonNode request) throws Exception {
        if (!request.hasNonNull("header_converter")) {
            return new SimpleHeaderConverter();
        }
        HeaderConverter made = made(request.get("header_converter").asText());
        Map<String, String> config = config(request.get("header_config"));
        config.put("converter.type", "header");
        made.configure(config);
        return made;
    }

    private static Step step(JsonNode step) throws Exception {
        Predicate predicate = null;
        if (step.hasNonNull("predicate")) {
            predicate = made(step.get("predicate").asText());
            predicate.configure(config(step.get("predicate_config")));
        }
        Transformation made = made(step.get("class").asText());
        made.configure(config(step.get("config")));
        return new Step(made, predicate, step.get("negate").asBoolean());
    }

    private static <T> T made(String name) throws Exception {
        return (T) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    private static Map<String, String> config(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        node.fields().forEachRemaining(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }

    private static ObjectNode record(
            JsonNode request, JsonNode given, List<Step> chain, JsonConverter keys, JsonConverter values,
            HeaderConverter headerForm) throws Exception {
        boolean isSink = request.get("is_sink").asBoolean();
        // Headers are read by their converter, and told with their schemas; else their texts are read and told.
        boolean isTold = request.get("are_headers_told").asBoolean();
        String topic = given.get("topic").asText();
        SchemaAndValue key = keys.toConnectData(topic, bytes(given.get("key")));
        SchemaAndValue value = values.toConnectData(topic, bytes(given.get("value")));
        Long stamp = given.get("timestamp").isNull() ? null : given.get("timestamp").asLong();
        ConnectRecord record = isSink
            ? new SinkRecord(topic, 0, key.schema(), key.value(), value.schema(), value.value(),
                given.get("offset").asLong(), stamp, TimestampType.CREATE_TIME)
            : new SourceRecord(new HashMap<>(), new HashMap<>(), topic, null, key.schema(), key.value(),
                value.schema(), value.value(), stamp);
        for (JsonNode header : given.get("headers")) {
            String name = header.get(0).asText();
            HeaderConverter reader = isTold ? headerForm : SIMPLE;
            record.headers().add(name, reader.toConnectHeader(topic, name, bytes(header.get(1))));
        }
        ObjectNode answer = JSON.createObjectNode();
        for (Step step : chain) {
            if (step.predicate() != null && step.predicate().test(record) == step.negate()) {
                continue;
            }
            record = (ConnectRecord) step.made().apply(record);
            if (record == null) {
                return answer.put("is_dropped", true);
            }
        }
        answer.put("topic", record.topic());
        answer.put("key", keys.fromConnectData(record.topic(), record.keySchema(), record.key()));
        answer.put("value", values.fromConnectData(record.topic(), record.valueSchema(), record.value()));
        ArrayNode headers = answer.putArray("headers");
        for (Header header : (Iterable<Header>) record.headers()) {
            HeaderConverter writer = isTold ? ENVELOPES : headerForm;
            byte[] text = writer.fromConnectHeader(record.topic(), header.key(), header.schema(), header.value());
            headers.addArray().add(header.key()).add(text);
        }
        return answer;
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }
}
