// Every operation of the npm client on a connector of its own: node operations.js PORT NAME FILE
"use strict";
const assert = require("node:assert/strict");
const { setTimeout: after } = require("node:timers/promises");
const { KafkaConnectClient } = require("kafka-connect-client");

const [port, name, file] = process.argv.slice(2);
const client = new KafkaConnectClient({ host: "127.0.0.1", port: Number(port) });
const connector = client.connector(name);
const config = { "connector.class": "FileStreamSource", file, topic: name, "tasks.max": "1" };
const LOOKS_MAX = 300;

async function until(isSo) {
    for (let look = 0; look < LOOKS_MAX; look += 1) {
        if (await isSo()) return;
        await after(200);
    }
    assert.fail(`not to be had: ${isSo}`);
}

async function inStates(state, ...tasks) {
    await until(async () => {
        const answer = await connector.getStatus().catch(() => null);
        const told = answer && [answer.data.connector.state, ...answer.data.tasks.map((task) => task.state)];
        return JSON.stringify(told) === JSON.stringify([state, ...tasks]);
    });
}

async function refused(request, status) {
    const error = await request.then(() => assert.fail("it was taken"), (reason) => reason);
    assert.equal(error.response.status, status);
    assert.equal(error.response.data.error_code, status);
}

async function cluster() {
    assert.equal((await client.getCluster()).data.version, "4.1.1");
    const plugins = (await client.getConnectorPlugins({ connectorsOnly: false })).data;
    assert(plugins.some((plugin) => plugin.class.endsWith("FileStreamSourceConnector")));
    const found = (await client.validateConnectorConfig("FileStreamSource", { "connector.class": "FileStreamSource" })).data;
    assert.equal(found.error_count, 2);
}

async function life() {
    assert.equal((await client.createConnector(name, config)).status, 201);
    await refused(client.createConnector(name, config), 409);
    await inStates("RUNNING", "RUNNING");
    assert((await client.getConnectors()).data.includes(name));
    const expanded = (await client.getConnectors({ expand: "status" })).data;
    assert.equal(expanded[name].status.connector.state, "RUNNING");
    assert.equal((await connector.get()).data.type, "source");
    assert.deepEqual((await connector.getConfig()).data, { ...config, name });
    assert.equal((await connector.updateConfig({ ...config, "batch.size": "9" })).status, 200);
    assert.equal((await connector.getConfig()).data["batch.size"], "9");
    await inStates("RUNNING", "RUNNING");
    const [task] = (await connector.getTasks()).data;
    assert.deepEqual(task.id, { connector: name, task: 0 });
    // The state that was waited for may have been from before the change.
    await until(async () => (await connector.getTaskStatus(0)).data.state === "RUNNING");
}

async function states() {
    assert.equal((await connector.restart({ includeTasks: true })).status, 204); // it sends its options as the body
    await inStates("RUNNING", "RUNNING");
    assert.equal((await connector.restartTask(0)).status, 204);
    await inStates("RUNNING", "RUNNING");
    assert.equal((await connector.pause()).status, 202);
    await inStates("PAUSED", "PAUSED");
    assert.equal((await connector.resume()).status, 202);
    await inStates("RUNNING", "RUNNING");
}

async function offsets() {
    const stored = async () => (await connector.getOffsets()).data.offsets;
    await until(async () => (await stored()).length === 1);
    assert.equal((await connector.resetTopics()).status, 202);
    await refused(connector.resetOffsets(), 400);
    assert.equal((await connector.stop()).status, 204);
    await inStates("STOPPED");
    const [{ partition }] = await stored();
    await connector.alterOffsets([{ partition, offset: { position: 4 } }]);
    assert.equal((await stored())[0].offset.position, 4);
    await connector.resetOffsets();
    assert.deepEqual(await stored(), []);
}

async function end() {
    assert.equal((await connector.delete()).status, 204);
    await until(async () => (await connector.getStatus().catch((error) => error.response)).status === 404);
    await refused(connector.get(), 404);
    assert.equal((await connector.create(config)).status, 201);
    await connector.delete();
}

async function all() {
    await cluster();
    await life();
    await states();
    await offsets();
    await end();
    console.log("all operations done");
}

all();
