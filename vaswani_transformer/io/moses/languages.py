"""Codes of languages: the rules use ``fr``, data sets also ``fra``, ``fr_FR`` or ``FR``."""

import re

#: two letters (ISO 639-1) of codes with three (ISO 639-2 and 639-3), for languages with rules here
#: or in Moses
TWO_LETTERS = {
    **{"ara": "ar", "arb": "ar", "asm": "as", "bel": "be", "ben": "bn", "bre": "br", "bul": "bg"},
    **{"cat": "ca", "ces": "cs", "cze": "cs", "cym": "cy", "wel": "cy", "dan": "da", "deu": "de"},
    **{"ger": "de", "ell": "el", "gre": "el", "eng": "en", "epo": "eo", "est": "et", "eus": "eu"},
    **{"baq": "eu", "fas": "fa", "per": "fa", "pes": "fa", "fin": "fi", "fra": "fr", "fre": "fr"},
    **{"gle": "ga", "guj": "gu", "hau": "ha", "hin": "hi", "hrv": "hr", "hun": "hu", "hye": "hy"},
    **{"arm": "hy", "ibo": "ig", "isl": "is", "ice": "is", "ita": "it", "jpn": "ja", "kan": "kn"},
    **{"kat": "ka", "geo": "ka", "kor": "ko", "kur": "ku", "lav": "lv", "lit": "lt", "ltz": "lb"},
    **{"mal": "ml", "mar": "mr", "mkd": "mk", "mac": "mk", "mlg": "mg", "mlt": "mt", "nld": "nl"},
    **{"dut": "nl", "nno": "nn", "nob": "nb", "nor": "no", "nya": "ny", "oci": "oc", "orm": "om"},
    **{"ori": "or", "pan": "pa", "pol": "pl", "por": "pt", "ron": "ro", "rum": "ro", "rus": "ru"},
    **{"kin": "rw", "slk": "sk", "slo": "sk", "slv": "sl", "smo": "sm", "som": "so", "spa": "es"},
    **{"sqi": "sq", "alb": "sq", "srd": "sc", "srp": "sr", "swe": "sv", "tah": "ty", "tam": "ta"},
    **{"tat": "tt", "tel": "te", "tur": "tr", "uig": "ug", "ukr": "uk", "urd": "ur", "uzb": "uz"},
    **{"zho": "zh", "chi": "zh"},
}


def language_of(code: str) -> str:
    """Return the code that the rules use: two letters, without country or script."""
    base = re.split("[-_]", code.lower())[0]
    return TWO_LETTERS.get(base, base)
