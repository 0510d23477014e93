"""The command ``vaswani``: prepares text, trains, averages, decodes and scores the plugin's models.

One file per verb; ``cli.py`` is the way in. The package imports ``transformer_plugin`` (and with
it torch and fairseq) inside a verb, never at import, so that ``vaswani --help`` answers at once.
"""
