// Perfetto's trace processor, as WebAssembly, on a pipe: what comes in on stdin are requests of its RPC protocol
// (TraceProcessorRpcStream), what goes out on stdout are its replies. Argument: the folder of engine_bundle.js.
"use strict";
const fs = require("fs");
const path = require("path");
const { MessageChannel } = require("worker_threads");

const folder = process.argv[2];
const say = (...words) => {
  const text = words.join(" ");
  if (!text.startsWith("warning: unsupported syscall")) fs.writeSync(2, text.slice(0, 500) + "\n"); // harmless
};
process.on("uncaughtException", (error) => {
  say(error.message);
  process.exit(1);
});
// The bundle is written for a browser's worker. Give it what it looks for there, and nothing of Node.
class FileRequest {
  open(_, name) {
    this.file = path.join(folder, path.basename(name));
  }
  send() {
    this.response = new Uint8Array(fs.readFileSync(this.file)).buffer;
  }
}
const worker = {
  console: { log: say, warn: say, error: say },
  location: { href: "http://localhost/engine_bundle.js" },
  WorkerGlobalScope: function () {},
  XMLHttpRequest: FileRequest,
  process: undefined,
};
worker.self = worker;
const code = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
new Function(...Object.keys(worker), code)(...Object.values(worker));

const { port1, port2 } = new MessageChannel();
port1.on("message", (reply) => process.stdout.write(Buffer.from(reply)));
setImmediate(() => {
  worker.onmessage({ data: port2 });
  process.stdin.on("data", (request) => port1.postMessage(new Uint8Array(request)));
  process.stdin.on("end", () => setImmediate(() => process.exit(0)));
});
