// kafkajs brings gzip alone and takes other codecs from other packages, as its documentation tells under "Other".
import { snappyDecompress, lz4Decompress } from "@platformatic/wasm-utils";
import { decompress as zstdDecompress } from "fzstd";
import kafkajs from "kafkajs";

const XERIAL_HEADER_BYTES = 16;
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);

// Java and kafka-python cut snappy into chunks, librdkafka does not.
function snappy(data) {
  if (!data.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC)) return snappyDecompress(data);
  const chunks = [];
  for (let at = XERIAL_HEADER_BYTES; at < data.length; ) {
    const size = data.readUInt32BE(at);
    chunks.push(snappyDecompress(data.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return Buffer.concat(chunks);
}

const reading = (decompress) => () => ({ decompress: async (data) => Buffer.from(decompress(data)) });

export function installCodecs() {
  kafkajs.CompressionCodecs[kafkajs.CompressionTypes.Snappy] = reading(snappy);
  kafkajs.CompressionCodecs[kafkajs.CompressionTypes.LZ4] = reading(lz4Decompress);
  kafkajs.CompressionCodecs[kafkajs.CompressionTypes.ZSTD] = reading(zstdDecompress);
}
