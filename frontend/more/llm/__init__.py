"""Language models: Llama's and GPT-2's architectures and related ones, from files, writing text.

In       a GGUF file, or a folder with config.json and safetensors
Out      `open_model`: a model and its tokenizer; sessions that read and write tokens
Changes  nothing on import
Next     files.py (a file to a model), configuration.py (what differs), model.py (what is computed), session.py (keys,
         values, one token after another), tokenizer.py, sampling.py, command.py (`python -m hcq llm`)
"""
