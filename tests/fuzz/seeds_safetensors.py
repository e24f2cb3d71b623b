"""Every dtype of the format, and every way in which container and index can be refused."""
from seeds import JSON_WORDS, compact, files

BITS = {"BF16": 16, "F16": 16, "F32": 32, "F64": 64, "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32,
        "I32": 32, "U64": 64, "I64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}


def container(header, data=b"0123456789abcdef", length=None):
    text = header.encode() if isinstance(header, str) else header
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype='"F32"', shape="[4]", offsets="[0,16]"):
    return f'{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}'


def two(first, second):
    tensors = {}
    for name, (begin, end) in (("a", first), ("b", second)):
        tensors[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    return compact(tensors)


HEADERS = {
    "good": entry(),
    "padded": entry() + "   ",
    "metadata": '{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
    "two": two((0, 6), (6, 16)),
    "empty tensor": '{"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},'
                    '"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
    "no json": "hello",
    "broken json": '{"a":{"dtype":"F32"',
    "array": "[]",
    "garbage behind": "{}x",
    "not utf8": b'{"\xff":1}',
    "duplicate": '{"a":1,"a":1}',
    "number": '{"a":1}',
    "metadata list": '{"__metadata__":[]}',
    "metadata number": '{"__metadata__":{"a":1}}',
    "no dtype": '{"a":{"shape":[4],"data_offsets":[0,16]}}',
    "dtype number": entry("7"),
    "unknown dtype": entry('"F33"'),
    "no shape": '{"a":{"dtype":"F32","data_offsets":[0,16]}}',
    "shape number": entry(shape="4"),
    "negative": entry(shape="[-4]"),
    "real": entry(shape="[4.0]"),
    "wrong shape": entry(shape="[5]"),
    "nine dimensions": entry(shape="[1,1,1,1,1,1,1,1,4]"),
    "eight dimensions": entry(shape="[1,1,1,1,1,1,1,4]"),
    "wraps": entry(shape="[4294967296,4294967296,4294967296]"),
    "bytes wrap": entry(shape="[4611686018427387908]"),
    "half a byte": entry('"F4"', "[31]"),
    "no offsets": '{"a":{"dtype":"F32","shape":[4]}}',
    "three offsets": entry(offsets="[0,8,16]"),
    "string offset": entry(offsets='["0",16]'),
    "negative offset": entry(offsets="[-16,0]"),
    "order": entry(offsets="[16,0]"),
    "beyond": entry(shape="[8]", offsets="[0,32]"),
    "far beyond": entry(offsets="[9223372036854775791,9223372036854775807]"),
    "overlap": two((0, 10), (8, 16)),
    "same bytes": two((0, 16), (0, 16)),
    "hole": two((0, 4), (8, 16)),
    "left over": entry(shape="[2]", offsets="[0,8]"),
}

SEEDS = {label: container(header) for label, header in HEADERS.items()}
for dtype, bits in BITS.items():
    SEEDS[f"dtype {dtype}"] = container(entry(f'"{dtype}"', f"[{128 // bits // 4},4]", f"[0,{128 // bits // 4 * 4 * bits // 8}]"),
                                        bytes(128 // bits // 4 * 4 * bits // 8))
SEEDS["scalar"] = container(entry('"I64"', "[]", "[0,8]"), bytes(8))
SEEDS["short"] = b"1234567"
SEEDS["empty"] = b"#file model.safetensors\n"
for length in (0, 1, 1 << 20, 100 * 1000 * 1000 + 1, 1 << 63, (1 << 64) - 1):
    SEEDS[f"length {length}"] = container(entry(), length=length)

ONE = container(compact({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                         "unlisted": {"dtype": "U8", "shape": [1], "data_offsets": [4, 5]}}), b"12345")
TWO = container(compact({"b": {"dtype": "F16", "shape": [2, 1], "data_offsets": [0, 4]}}), b"1234")
INDEXES = {
    "good": '{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}',
    "empty map": '{"weight_map":{}}',
    "broken": '{"weight_map":',
    "list": "[]",
    "no map": "{}",
    "map is a list": '{"weight_map":[]}',
    "number": '{"weight_map":{"a":1}}',
    "parent": '{"weight_map":{"a":"../one.safetensors"}}',
    "absolute": '{"weight_map":{"a":"/etc/passwd"}}',
    "dots": '{"weight_map":{"a":".."}}',
    "no name": '{"weight_map":{"a":""}}',
    "long name": '{"weight_map":{"a":"' + "x" * 256 + '"}}',
    "duplicate": '{"weight_map":{"a":"one.safetensors","a":"one.safetensors"}}',
    "absent shard": '{"weight_map":{"a":"three.safetensors"}}',
    "wrong shard": '{"weight_map":{"a":"two.safetensors"}}',
    "no container": '{"weight_map":{"a":"model.safetensors.index.json"}}',
}
for label, index in INDEXES.items():
    SEEDS[f"index {label}"] = files(model__safetensors__index__json=index, one__safetensors=ONE, two__safetensors=TWO)
SEEDS["index with many files"] = files(model__safetensors__index__json=compact(
    {"weight_map": {str(i): f"{i}.safetensors" for i in range(4097)}}))
SEEDS["nothing"] = files(one__safetensors=ONE)

WORDS = JSON_WORDS + list(BITS) + ["\"dtype\":", "\"shape\":", "\"data_offsets\":", "__metadata__", "weight_map",
                                   "one.safetensors", "model.safetensors.index.json", "../", "[0,16]", "[4]"]
