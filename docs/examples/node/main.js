// A plugin without an SDK: the whole protocol that a tool needs, in one file.
//
// The host starts `node main.js` with one end of a socket pair; PURRA_FD names its descriptor.
// A frame is a 10-byte header and a msgpack body:
//
//   0  u32 BE  length of the body      4  u32 BE  call id, 0 = the connection
//   8  u8      type                    9  u8      flags (8 = the body is a list of items)
//
// We say HELLO, the host says WELCOME, we say READY, and from then on it CALLs. Each CALL gets
// exactly one RESULT or ERROR, cancelled or not. stdout and stderr are logs, nothing more.

"use strict";
const crypto = require("node:crypto");
const fs = require("node:fs");
const net = require("node:net");

const HELLO = 1, WELCOME = 2, READY = 3, PING = 4, PONG = 5, DRAIN = 6;
const CALL = 16, DATA = 17, CREDIT = 18, RESULT = 19, ERROR = 20, CANCEL = 21;
const HEADER_BYTES = 10;
const BATCH = 8;

// -- tools: what this plugin is for ------------------------------------------------------------

const tools = {
  "text.count"({ text }) {
    const words = text.split(/\s+/u).filter(Boolean).length;
    return { words, characters: [...text].length, lines: text.split("\n").length };
  },

  // A slow tool looks at `call.cancelled`; what it reports on the way are items of its stream.
  async "text.countdown"({ from, step_ms = 10 }, call) {
    for (let left = from; left > 0; left--) {
      if (call.cancelled) throw new ToolCancelled();
      await call.progress({ left });
      await new Promise((resolve) => setTimeout(resolve, step_ms));
    }
    return { done: true };
  },
};

class ToolCancelled extends Error {}

// -- msgpack: the strict values that may cross -------------------------------------------------

function encode(value) {
  const out = [];
  put(value, out);
  return Buffer.concat(out);
}

function put(value, out) {
  if (value === null || value === undefined) out.push(Buffer.from([0xc0]));
  else if (typeof value === "boolean") out.push(Buffer.from([value ? 0xc3 : 0xc2]));
  else if (typeof value === "number") putNumber(value, out);
  else if (typeof value === "bigint") putBig(value, out);
  else if (typeof value === "string") {
    const text = Buffer.from(value.toWellFormed ? value.toWellFormed() : value, "utf8");
    putSize(text.length, [0xa0, 32], [0xd9, 0xda, 0xdb], out);
    out.push(text);
  } else if (Array.isArray(value)) {
    putSize(value.length, [0x90, 16], [null, 0xdc, 0xdd], out);
    for (const item of value) put(item, out);
  } else {
    const keys = Object.keys(value);
    putSize(keys.length, [0x80, 16], [null, 0xde, 0xdf], out);
    for (const key of keys) { put(key, out); put(value[key], out); }
  }
}

function putNumber(value, out) {
  if (Number.isSafeInteger(value)) return putBig(BigInt(value), out);
  if (!Number.isFinite(value)) throw new Error("a number that is not finite cannot be sent");
  const buffer = Buffer.alloc(9);
  buffer[0] = 0xcb;
  buffer.writeDoubleBE(value, 1);
  out.push(buffer);
}

function putBig(value, out) {
  if (value >= 0n && value < 128n) return out.push(Buffer.from([Number(value)]));
  const buffer = Buffer.alloc(9);
  buffer[0] = 0xd3; // every legal longer form is accepted, so one form is enough
  buffer.writeBigInt64BE(value, 1);
  return out.push(buffer);
}

function putSize(size, [small, below], [one, two, four], out) {
  if (size < below) return out.push(Buffer.from([small | size]));
  if (one !== null && size < 256) return out.push(Buffer.from([one, size]));
  const wide = size >= 65536;
  const buffer = Buffer.alloc(wide ? 5 : 3);
  buffer[0] = wide ? four : two;
  if (wide) buffer.writeUInt32BE(size, 1); else buffer.writeUInt16BE(size, 1);
  return out.push(buffer);
}

function decode(body) {
  let at = 0;
  const uint = (bytes) => { const n = body.readUIntBE(at, bytes); at += bytes; return n; };
  const text = (size) => { at += size; return body.toString("utf8", at - size, at); };
  const list = (size) => Array.from({ length: size }, read);
  const map = (size) => {
    const out = {};
    for (let n = 0; n < size; n++) { const key = read(); out[key] = read(); }
    return out;
  };
  const big = (signed) => {
    const n = signed ? body.readBigInt64BE(at) : body.readBigUInt64BE(at);
    at += 8;
    const safe = n >= Number.MIN_SAFE_INTEGER && n <= Number.MAX_SAFE_INTEGER;
    return safe ? Number(n) : n;
  };
  const more = {
    0xc0: () => null, 0xc2: () => false, 0xc3: () => true,
    0xc4: () => { const size = uint(1); at += size; return body.subarray(at - size, at); },
    0xc5: () => { const size = uint(2); at += size; return body.subarray(at - size, at); },
    0xc6: () => { const size = uint(4); at += size; return body.subarray(at - size, at); },
    0xca: () => { at += 4; return body.readFloatBE(at - 4); },
    0xcb: () => { at += 8; return body.readDoubleBE(at - 8); },
    0xcc: () => uint(1), 0xcd: () => uint(2), 0xce: () => uint(4), 0xcf: () => big(false),
    0xd0: () => { at += 1; return body.readInt8(at - 1); },
    0xd1: () => { at += 2; return body.readInt16BE(at - 2); },
    0xd2: () => { at += 4; return body.readInt32BE(at - 4); },
    0xd3: () => big(true),
    0xd9: () => text(uint(1)), 0xda: () => text(uint(2)), 0xdb: () => text(uint(4)),
    0xdc: () => list(uint(2)), 0xdd: () => list(uint(4)),
    0xde: () => map(uint(2)), 0xdf: () => map(uint(4)),
  };
  function read() {
    const mark = uint(1);
    if (mark < 0x80) return mark;
    if (mark < 0x90) return map(mark & 0x0f);
    if (mark < 0xa0) return list(mark & 0x0f);
    if (mark < 0xc0) return text(mark & 0x1f);
    if (mark >= 0xe0) return mark - 256;
    if (!more[mark]) throw new Error(`the byte 0x${mark.toString(16)} is no value`);
    return more[mark]();
  }
  return read();
}

// -- the connection ----------------------------------------------------------------------------

const socket = new net.Socket({ fd: Number(process.env.PURRA_FD), readable: true, writable: true });
const [plugin, version] = process.env.PURRA_PLUGIN.split("@");
const calls = new Map(); // id -> what is known of an open call
let connectionCredit = 4 * 1024 * 1024;
let draining = false;

function send(type, id, value, flags = 0) {
  const body = encode(value);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(body.length, 0);
  header.writeUInt32BE(id, 4);
  header[8] = type;
  header[9] = flags;
  socket.write(Buffer.concat([header, body]));
  return body.length;
}

async function serve(id, { adapter, method, args, window }) {
  const call = { cancelled: false, credit: window || 64 * 1024, wake: null };
  calls.set(id, call);
  call.progress = async (item) => {
    while (call.credit <= 0 || connectionCredit <= 0) {
      if (call.cancelled) throw new ToolCancelled();
      await new Promise((resolve) => { call.wake = resolve; });
    }
    const cost = send(DATA, id, [item], BATCH) + 32; // what an item costs is told by its frame
    call.credit -= cost;
    connectionCredit -= cost;
  };
  try {
    // Only what the manifest declares: no other method, and nothing that every object inherits.
    if (method !== "call" || !Object.hasOwn(tools, adapter)) {
      return fail(id, "unimplemented", `there is no ${adapter}.${method} here`, "no");
    }
    send(RESULT, id, { value: await tools[adapter](args.arguments, call) });
  } catch (error) {
    if (error instanceof ToolCancelled) fail(id, "cancelled", "stopped when asked to", "yes");
    else fail(id, "internal", error.constructor.name, "yes", { type: error.constructor.name });
    if (!(error instanceof ToolCancelled)) console.error(error);
  } finally {
    calls.delete(id);
    if (draining && calls.size === 0) socket.end();
  }
}

function fail(id, code, message, executed, detail = {}) {
  const origin = code === "cancelled" ? "caller" : "plugin";
  send(ERROR, id, { code, message, origin, executed, retry: "never", detail });
}

function frame(type, id, body) {
  if (type === CALL) return void serve(id, decode(body));
  if (type === PING) return pong(decode(body).token);
  if (type === WELCOME) return ready(decode(body));
  const call = calls.get(id);
  if (type === CANCEL && call) call.cancelled = true;
  else if (type === CREDIT) {
    if (id === 0) connectionCredit += decode(body);
    else if (call) call.credit += decode(body);
  } else if (type === DRAIN) {
    draining = true;
    if (calls.size === 0) socket.end();
  }
  const awake = id === 0 ? [...calls.values()] : call ? [call] : [];
  for (const one of awake) if (one.wake) { one.wake(); one.wake = null; }
  return undefined;
}

function pong(token) {
  const rss = process.memoryUsage().rss;
  send(PONG, 0, { token, lag_ms: 0, inflight: calls.size, rss });
}

function ready() {
  const offers = Object.keys(tools).map((name) => ({ kind: "tool", name }));
  send(READY, 0, { offers, isolation: {} });
}

let pending = Buffer.alloc(0);
socket.on("data", (data) => {
  pending = pending.length ? Buffer.concat([pending, data]) : data;
  while (pending.length >= HEADER_BYTES) {
    const end = HEADER_BYTES + pending.readUInt32BE(0);
    if (pending.length < end) return;
    const body = pending.subarray(HEADER_BYTES, end);
    const [id, type] = [pending.readUInt32BE(4), pending[8]];
    pending = pending.subarray(end);
    frame(type, id, body);
  }
});
socket.on("end", () => process.exit(0)); // the host is gone, or has said goodbye
socket.on("error", () => process.exit(1));

send(HELLO, 0, {
  proto: [1, 1],
  plugin,
  version,
  manifest_sha256: crypto.createHash("sha256").update(fs.readFileSync(process.env.PURRA_MANIFEST)).digest("hex"),
  features: [],
  limits: { max_frame: 1024 * 1024, inflight: 8 },
  sdk: `none node/${process.versions.node}`,
  pid: process.pid,
  nonce: process.env.PURRA_NONCE ?? "",
});
