"""Names of countries: a thing in a country may be said to be in a town of it."""

from __future__ import annotations

from functools import cache

__all__ = ["countries", "same_country"]

_NAMES = """
afghanistan albania algeria america andorra angola argentina armenia australia austria azerbaijan
bahamas bahrain bangladesh barbados belarus belgium belize benin bhutan bolivia bosnia botswana
brazil britain brunei bulgaria burundi cambodia cameroon canada chad chile china colombia congo
croatia cuba cyprus czechia denmark djibouti dominica ecuador egypt england eritrea estonia
ethiopia europe fiji finland france gabon gambia georgia germany ghana greece greenland grenada
guatemala guinea guyana haiti holland honduras hungary iceland india indonesia iran iraq ireland
israel italy jamaica japan jordan kazakhstan kenya kosovo kuwait kyrgyzstan laos latvia lebanon
lesotho liberia libya liechtenstein lithuania luxembourg madagascar malawi malaysia maldives mali
malta mauritania mauritius mexico moldova monaco mongolia montenegro morocco mozambique myanmar
namibia nepal netherlands nicaragua niger nigeria norway oman pakistan palestine panama paraguay
peru philippines poland portugal qatar romania russia rwanda scotland senegal serbia seychelles
singapore slovakia slovenia somalia spain sudan suriname sweden switzerland syria taiwan tajikistan
tanzania thailand togo tonga tunisia turkey turkmenistan uganda uk ukraine uruguay us usa uzbekistan
vanuatu venezuela vietnam wales yemen zambia zimbabwe
"""
_LONGER = (
    "costa rica|cape verde|czech republic|dominican republic|el salvador|great britain|hong kong|"
    "ivory coast|new zealand|north korea|north macedonia|northern ireland|papua new guinea|"
    "san marino|saudi arabia|sierra leone|solomon islands|south africa|south korea|south sudan|"
    "sri lanka|united arab emirates|united kingdom|united states|united states of america"
)


_SEVERAL = (
    frozenset({"uk", "united kingdom", "great britain", "britain"}),
    frozenset({"us", "usa", "united states", "america"}),
    frozenset({"holland", "netherlands"}),
)  # countries of several names


@cache
def countries() -> frozenset[str]:
    """Return the names of countries in English, lower-cased, without articles."""
    return frozenset([*_NAMES.split(), *_LONGER.split("|")])


def same_country(one: str, other: str) -> bool:
    """Return whether two names are of one country."""
    return any({one, other} <= names for names in _SEVERAL)
