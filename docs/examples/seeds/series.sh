# "Apache Kafka Series: Kafka Connect": its requests. <name> and <n> are a connector and the number of a task.
curl localhost:8083
curl localhost:8083/connector-plugins
curl localhost:8083/connectors
curl -X POST localhost:8083/connectors/<name>/restart
curl localhost:8083/connectors/<name>/tasks
curl -X POST localhost:8083/connectors/<name>/tasks/<n>/restart
curl -X PUT localhost:8083/connectors/<name>/pause
curl -X PUT localhost:8083/connectors/<name>/resume
curl localhost:8083/connectors/<name>/status
curl localhost:8083/connectors/<name>
curl -X DELETE localhost:8083/connectors/<name>
