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
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Takes records through Kafka Connect's own transformations: a request a line on stdin, its answer a line on stdout. */
@SuppressWarnings({"unchecked", "rawtypes", "deprecation"})
public class Transforms {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final SimpleHeaderConverter HEADERS = new SimpleHeaderConverter();

    /** One transformation, and for which records. */
    private record Step(Transformation made, Predicate predicate, boolean negate) { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answered(JSON.readTree(line))));
        }
    }

    private static JsonNode answered(JsonNode request) {
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
        for (JsonNode record : request.get("records")) {
            try {
                found.add(record(record, chain, keys, values, request.get("is_sink").asBoolean()));
            } catch (Exception error) {
                found.addObject().put("refusal", error.toString());
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
            JsonNode given, List<Step> chain, JsonConverter keys, JsonConverter values, boolean isSink) throws Exception {
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
            record.headers().add(name, HEADERS.toConnectHeader(topic, name, bytes(header.get(1))));
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
            byte[] text = HEADERS.fromConnectHeader(record.topic(), header.key(), header.schema(), header.value());
            headers.addArray().add(header.key()).add(text);
        }
        return answer;
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }
}
