"""The small files of a model, whole ones and every way in which they can be refused."""
from seeds import JSON_WORDS, compact, edits, files

CONFIG = compact({
    "architectures": ["HunYuanDenseV1ForCausalLM"], "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": True, "use_qk_norm": True, "use_cla": False,
    "eos_token_id": 2, "max_position_embeddings": 64, "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 6, "vocab_size": 10,
    "rope_scaling": {"alpha": 50.0, "type": "dynamic"}})
GENERATION = compact({"eos_token_id": [5, 7], "repetition_penalty": 1.05, "do_sample": True})
HYMT = compact({"prompts": "hy-mt2", "languages": ["en", "zh-CN", "zh-TW", "en-US"], "name": "Übersetzer"})
README = "---\nlanguage:\n- zh\nbase_model:\n  - tencent/HY-MT1.5-7B\n---\n\n# Hy-MT2 translation\n"

TEMPLATES = '{"templates":{%s}}'
SCALING = '{"alpha":50.0,"type":"dynamic"}'
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}

CONFIGS = edits(CONFIG, {
    "architecture": ("HunYuanDenseV1ForCausalLM", "MistralForCausalLM"),
    "llama": ("HunYuanDenseV1ForCausalLM", "LlamaForCausalLM"),
    "architecture number": ('["HunYuanDenseV1ForCausalLM"]', "7"),
    "architecture list": ("HunYuanDenseV1ForCausalLM", 'X","HunYuanDenseV1ForCausalLM'),
    "no architecture": ("architectures", "architecture"),
    "attention bias": ('"attention_bias":false', '"attention_bias":true'),
    "bias string": ('"attention_bias":false', '"attention_bias":"no"'),
    "mlp bias": ('"mlp_bias":false', '"mlp_bias":true'),
    "no qk norm": ('"use_qk_norm":true', '"use_qk_norm":false'),
    "cla": ('"use_cla":false', '"use_cla":true'),
    "gelu": ('"silu"', '"gelu"'),
    "act number": ('"silu"', "1"),
    "gptq": ('{"arch', '{"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128},"arch'),
    "fp8": ('{"arch', '{"quantization_config":{"quant_method":"fp8","ignored_layers":["lm_head"]},"arch'),
    "compressed": ('{"arch', '{"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized",'
                             '"ignore":["lm_head"]},"arch'),
    "quantized number": ('{"arch', '{"quantization_config":1,"arch'),
    "duplicate": ('{"arch', '{"vocab_size":10,"arch'),
    "no json": ('{"arch', "{arch"),
    "missing": ('"hidden_size":8,', ""),
    "null": ('"hidden_size":8', '"hidden_size":null'),
    "zero": ('"hidden_size":8', '"hidden_size":0'),
    "negative": ('"hidden_size":8', '"hidden_size":-8'),
    "real": ('"hidden_size":8', '"hidden_size":8.0'),
    "string": ('"hidden_size":8', '"hidden_size":"8"'),
    "two to the 32": ('"hidden_size":8', '"hidden_size":4294967304'),
    "largest": ('"hidden_size":8', '"hidden_size":9223372036854775807'),
    "too large": ('"hidden_size":8', '"hidden_size":9223372036854775808'),
    "other shape": ('"hidden_size":8', '"hidden_size":16'),
    "layers": ('"num_hidden_layers":1', '"num_hidden_layers":2'),
    "heads": ('"num_attention_heads":2', '"num_attention_heads":3'),
    "kv heads": ('"num_key_value_heads":1', '"num_key_value_heads":0'),
    "kv heads divide": ('"num_attention_heads":2,"num_key_value_heads":1', '"num_attention_heads":3,"num_key_value_heads":2'),
    "no kv heads": ('"num_key_value_heads":1,', ""),
    "odd head": ('"head_dim":4', '"head_dim":3'),
    "head of two": ('"head_dim":4', '"head_dim":2'),
    "large head": ('"head_dim":4', '"head_dim":65536'),
    "attention head": ("head_dim", "attention_head_dim"),
    "no head": ('"head_dim":4,', ""),
    "no head, no division": ('2,"num_key_value_heads":1,"head_dim":4', "3"),
    "intermediate": ('"intermediate_size":6', '"intermediate_size":1000000000000'),
    "vocab": ('"vocab_size":10', '"vocab_size":11'),
    "positions": ('"max_position_embeddings":64', '"max_position_embeddings":4294967296'),
    "eps zero": ("1e-05", "0"),
    "eps string": ("1e-05", '"small"'),
    "eps large": ("1e-05", "2"),
    "theta zero": ("10000.0", "0"),
    "theta infinite": ("10000.0", "1e400"),
    "theta nan": ("10000.0", "NaN"),
    "no theta": ('"rope_theta":10000.0,', ""),
    "alpha negative": ("50.0", "-50.0"),
    "alpha large": ("50.0", "1e300"),
    "alpha tiny": ("50.0", "1e-30"),
    "alpha null": ("50.0", "null"),
    "alpha string": ("50.0", '"x"'),
    "yarn": ("dynamic", "yarn"),
    "linear": ('"type":"dynamic"', '"type":"linear","factor":2.0'),
    "type number": ('"dynamic"', "17"),
    "default": ('"type":"dynamic"', '"rope_type":"default"'),
    "no type": ('"type":"dynamic"', '"factor":1.0'),
    "scaling number": ('{"alpha":50.0,"type":"dynamic"}', "3"),
    "scaling null": ('{"alpha":50.0,"type":"dynamic"}', "null"),
    "parameters": ('"rope_scaling":{', '"rope_parameters":{"rope_theta":500,'),
    "parameters theta": ('"rope_scaling":{', '"rope_parameters":{"rope_theta":"x",'),
    "stop negative": ('"eos_token_id":2', '"eos_token_id":-1'),
    "stop beyond": ('"eos_token_id":2', '"eos_token_id":10'),
    "stop list": ('"eos_token_id":2', '"eos_token_id":[2,3,2]'),
    "stop strings": ('"eos_token_id":2', '"eos_token_id":[2,"3"]'),
    "no stop": ('"eos_token_id":2,', ""),
    "tied number": ('"tie_word_embeddings":true', '"tie_word_embeddings":1'),
    "llama3": (SCALING, compact(LLAMA3)), "llama3 narrow": (SCALING, compact({**LLAMA3, "high_freq_factor": 1.0})),
    "llama3 no factor": (SCALING, compact({**LLAMA3, "factor": None})),
    "llama3 context": (SCALING, compact({**LLAMA3, "original_max_position_embeddings": 0})),
    "partly rotated": ('"vocab_size"', '"partial_rotary_factor":0.5,"vocab_size"'),
    "scaling partly rotated": ('"alpha"', '"partial_rotary_factor":0.5,"alpha"'),
    "partly a string": ('"vocab_size"', '"partial_rotary_factor":"1","vocab_size"'),
    "linear without factor": ('"type":"dynamic"', '"type":"linear"'),
    "linear zero": ('"type":"dynamic"', '"type":"linear","factor":0'),
    "untied": ('"tie_word_embeddings":true', '"tie_word_embeddings":false'),
})
SEEDS = {f"config {label}": text for label, text in CONFIGS.items()}
SEEDS["config many stops"] = CONFIG.replace('"eos_token_id":2', '"eos_token_id":[' + ",".join(
    str(i) for i in range(20)) + "]").replace('"vocab_size":10', '"vocab_size":100')
SEEDS.update({"good": CONFIG, "nothing": b"", "config empty": "#file config.json\n", "config list": "[]",
              "all": files(config__json=CONFIG, generation_config__json=GENERATION, hymt__json=HYMT, README__md=README)})

for label, text in {
        "good": GENERATION, "empty": "{}", "null": '{"repetition_penalty":null}', "one": '{"eos_token_id":9}',
        "beyond": '{"eos_token_id":99}', "zero": '{"repetition_penalty":0}', "tiny": '{"repetition_penalty":1e-50}',
        "large": '{"repetition_penalty":10.5}', "huge": '{"repetition_penalty":1e300}', "broken": "{", "list": "[]",
        "string": '{"repetition_penalty":"1"}',
        "sampling": '{"temperature":0.7,"top_k":20,"top_p":0.6}', "sampling wrong": '{"temperature":-1,"top_k":-5,"top_p":7}',
}.items():
    SEEDS[f"generation {label}"] = files(config__json=CONFIG, generation_config__json=text)

for label, text in {
        "good": HYMT, "broken": "{", "list": "[]", "empty": "{}", "prompts number": '{"prompts":1}',
        "prompts unknown": '{"prompts":"hy-mt3"}', "languages string": '{"languages":"en"}', "no languages": '{"languages":[]}',
        "language number": '{"languages":["en",1]}', "language unknown": '{"languages":["tlh"]}', "name number": '{"name":1}',
        "no name": '{"name":""}', "two lines": '{"name":"two\\nlines"}', "separator": '{"name":"two\\u2028lines"}',
        "control": '{"name":"\\u009b1m"}', "long name": compact({"name": "x" * 101}),
        "template": '{"prompts":{"plain":"{source_lang} {target_lang} {text}"}}',
        "alma": '{"prompts":"alma"}', "tower": '{"prompts":"tower-instruct"}', "plain": TEMPLATES % '"plain":"{text}"',
        "both wordings": TEMPLATES % '"plain_zh":"{target_lang_zh}{src_zh}{text}","plain_en":"{tgt_en}<{source_code}{text}{x"',
        "chat": TEMPLATES % '"plain":"{text}","chat":"<s>{prompt}</s>{target_code}"',
        "every form": TEMPLATES % ('"plain":"{text}","chat":"{prompt}","terms":"{terms}{text}","term_line":"{source_term}={target_term}",'
                                   '"term_joiner":";","context":"{context}{text}","format":"{text}","delimiters":"{text}",'
                                   '"style":"{style}{text}"'),
        "over a family": '{"prompts":"hy-mt2","templates":{"terms_en":"{text}","chat":"{prompt}"}}',
        "family with chat": '{"prompts":"hy-mt1.5","templates":{"chat":"{prompt}"}}',
        "first family with chat": '{"prompts":"hunyuan-mt","templates":{"chat":"{prompt}"}}',
        "tower with chat": '{"prompts":"tower-instruct","templates":{"chat":"{prompt}"}}',
        "chat with a row too many": TEMPLATES % '"plain":"{text}","chat":"<｜hy_User｜>{prompt}"',
        "terms without line": TEMPLATES % '"plain":"{text}","terms":"{terms}{text}","chat":"{prompt}"',
        "long template": TEMPLATES % ('"plain":"{text}' + "x " * 2100 + '","chat":"{prompt}"'),
        "too long template": TEMPLATES % ('"plain":"{text}' + "x" * 16400 + '"'),
        "no plain": TEMPLATES % '"chat":"{prompt}"', "no templates": '{"templates":{}}', "templates list": '{"templates":[]}',
        "template number": TEMPLATES % '"plain":5', "template with zero": TEMPLATES % '"plain":"{text}\\u0000"',
        "unknown form": TEMPLATES % '"plain_de":"{text}"', "no slot": TEMPLATES % '"plain":"translate"',
        "two slots": TEMPLATES % '"plain":"{text}{text}"', "unknown slot": TEMPLATES % '"plain":"{text}{tekst}"',
        "slot of another form": TEMPLATES % '"plain":"{text}{style}"', "chat without prompt": TEMPLATES % '"chat":"{text}"',
        "line without term": TEMPLATES % '"term_line":"{source_term}"', "long slot": TEMPLATES % ('"plain":"{' + "a" * 60 + '}"'),
        "adapters": '{"adapters":{"de":"de","zh>ja":"sub/ja","zh-TW>en":"./x"}}', "adapters list": '{"adapters":["de"]}',
        **{f"adapters {number}": '{"adapters":{%s}}' % text for number, text in enumerate((
            '"@legal":"x"', '"xx":"x"', '"de":5', '"de":""', '"de":"/etc"', '"de":"../x"', '"de":"a/../b"', '"de":"a/.."',
            '"de":"..a/b.."', '"zh-TW":"a","zh-Hant":"b"', '"de":"' + "x" * 1030 + '"'))},
        "duplicate": '{"prompts":"hy-mt2","prompts":"hy-mt1.5"}',
}.items():
    SEEDS[f"hymt {label}"] = files(config__json=CONFIG, hymt__json=text)

for label, text in {
        "title": "# HY-MT1.5\n", "front": README, "crlf": README.replace("\n", "\r\n"), "open": "---\nbase_model: x\n",
        "one line": "---\nbase_model: tencent/Hunyuan-MT-7B\n---\n", "chimera": "# Hunyuan-MT-Chimera-7B\n",
        "two names": "# Hy-MT2 from HY-MT1.5\n", "bytes": b"# \xff\xfe\n", "long": "# " + "x" * 300 + "\n",
        "nul": b"# a\0b\n", "list": "---\nbase_model:\n- a\nx: y\n- b\n---\n# t\n",
}.items():
    SEEDS[f"readme {label}"] = files(config__json=CONFIG, README__md=text)

WORDS = JSON_WORDS + sorted({word for word in CONFIG.replace(":", ",").replace("{", ",").replace("}", ",").split(",")
                             if word.startswith('"')}) + [
    "rope_parameters", "rope_type", "quantization_config", "quant_method", "attention_head_dim", "repetition_penalty",
    "prompts", "languages", "templates", "adapters", "plain", "terms", "term_line", "context", "style", "chat", "{text}",
    "{prompt}", "{terms}", "{source_term}", "{target_term}", "{source_lang}", "{target_code}",
    "hunyuan-mt", "hy-mt1.5", "hy-mt2", "base_model:", "# ", "---\n", "generation_config.json\n",
    "hymt.json\n", "README.md\n"]
