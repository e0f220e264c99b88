EXPORT_SETTINGS = "fairseq_posenc.json"
