// What @platformatic/kafka calls and Node 20 lacks; to be imported before the client.
import { decompress } from "fzstd";
import zlib from "node:zlib";

Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((a, b) => { resolve = a; reject = b; });
  return { promise, resolve, reject };
};

// It asks for the first of these before it uses the second, and the programs here only read zstd.
zlib.zstdCompressSync ??= () => { throw new Error("fzstd cannot compress"); };
zlib.zstdDecompressSync ??= (data) => Buffer.from(decompress(data));
