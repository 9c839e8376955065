import java.io.File;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** One name node and one data node on loopback, for tests: HdfsServer FOLDER PORT HTTP_PORT. */
public final class HdfsServer {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new HdfsConfiguration();
        for (var entry : Map.of(
                "hdfs.minidfs.basedir", arguments[0],
                "dfs.permissions.enabled", "false",
                "dfs.namenode.fs-limits.min-block-size", "1024").entrySet()) {
            configuration.set(entry.getKey(), entry.getValue());
        }
        new MiniDFSCluster.Builder(configuration)
            .nameNodePort(Integer.parseInt(arguments[1]))
            .nameNodeHttpPort(Integer.parseInt(arguments[2]))
            .numDataNodes(1).format(!new File(arguments[0]).exists()).build().waitActive();
        System.out.println("READY");
        Thread.currentThread().join();
    }
}
