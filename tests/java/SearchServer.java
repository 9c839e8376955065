import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One OpenSearch node on loopback, for tests: SearchServer FOLDER HTTP_PORT TRANSPORT_PORT. */
public final class SearchServer {
    public static void main(String[] arguments) throws InterruptedException {
        var runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("http.port", arguments[1]);
            settings.put("transport.port", arguments[2]);
            settings.put("network.host", "127.0.0.1");
            settings.put("discovery.type", "single-node");
            settings.put("cluster.routing.allocation.disk.threshold_enabled", "false");
        });
        runner.build(
            OpenSearchRunner.newConfigs().basePath(arguments[0]).numOfNode(1).clusterName("headrace").disableESLogger().printOnFailure());
        Thread.currentThread().join();
    }
}
