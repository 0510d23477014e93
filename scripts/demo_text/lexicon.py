"""The words of the demo text other than numbers: nouns, people, places and times, in tables.

Each English entry occurs once, with one translation into each language: a source sentence has
exactly one correct target, so exact match is a fair measure.
"""

from typing import NamedTuple

ARTICLES = {  # German definite articles by gender; the nominative, accusative and dative
    "m": {"nom": "der", "acc": "den", "dat": "dem"},
    "f": {"nom": "die", "acc": "die", "dat": "der"},
    "n": {"nom": "das", "acc": "das", "dat": "dem"},
}


class Noun(NamedTuple):
    """A noun: English, German and French, singular and plural, with the two genders."""

    en: str
    en_plural: str
    de: str
    de_plural: str
    de_gender: str
    fr: str
    fr_plural: str
    fr_gender: str

    def german_plural(self, case: str) -> str:
        """The German plural; the dative adds n, except after n and s."""
        plural = self.de_plural
        return plural + "n" if case == "dat" and plural[-1] not in "ns" else plural


def _nouns(table: str) -> list[Noun]:
    """Nouns from lines ``en/plural = article de/plural = article fr/plural``."""
    nouns = []
    for line in table.strip().splitlines():
        english, german, french = (cell.strip() for cell in line.split("="))
        en, en_plural = english.split("/")
        de_gender, german = german.split(" ", 1)
        de, de_plural = german.split("/")
        fr_gender, french = french.split(" ", 1)
        fr, fr_plural = french.split("/")
        nouns.append(Noun(en, en_plural, de, de_plural, de_gender, fr, fr_plural, fr_gender))
    return nouns


# Nouns to count (or, in the groups after "minutes", to put in order: "the 347th visitor").
NOUNS: dict[str, list[Noun]] = {
    "goods": _nouns("""
        book/books = n Buch/Bücher = m livre/livres
        lamp/lamps = f Lampe/Lampen = f lampe/lampes
        chair/chairs = m Stuhl/Stühle = f chaise/chaises
        table/tables = m Tisch/Tische = f table/tables
        bicycle/bicycles = n Fahrrad/Fahrräder = m vélo/vélos
        shirt/shirts = n Hemd/Hemden = f chemise/chemises
        hat/hats = m Hut/Hüte = m chapeau/chapeaux
        coat/coats = m Mantel/Mäntel = m manteau/manteaux
        pencil/pencils = m Bleistift/Bleistifte = m crayon/crayons
        glass/glasses = n Glas/Gläser = m verre/verres
        bottle/bottles = f Flasche/Flaschen = f bouteille/bouteilles
        cup/cups = f Tasse/Tassen = f tasse/tasses
        plate/plates = m Teller/Teller = f assiette/assiettes
        knife/knives = n Messer/Messer = m couteau/couteaux
        ball/balls = m Ball/Bälle = m ballon/ballons
        candle/candles = f Kerze/Kerzen = f bougie/bougies
        flower/flowers = f Blume/Blumen = f fleur/fleurs
        postcard/postcards = f Postkarte/Postkarten = f carte postale/cartes postales
        newspaper/newspapers = f Zeitung/Zeitungen = m journal/journaux
        key/keys = m Schlüssel/Schlüssel = f clé/clés
        """),
    "food": _nouns("""
        apple/apples = m Apfel/Äpfel = f pomme/pommes
        pear/pears = f Birne/Birnen = f poire/poires
        egg/eggs = n Ei/Eier = m œuf/œufs
        lemon/lemons = f Zitrone/Zitronen = m citron/citrons
        onion/onions = f Zwiebel/Zwiebeln = m oignon/oignons
        tomato/tomatoes = f Tomate/Tomaten = f tomate/tomates
        carrot/carrots = f Karotte/Karotten = f carotte/carottes
        orange/oranges = f Orange/Orangen = f orange/oranges
        potato/potatoes = f Kartoffel/Kartoffeln = f pomme de terre/pommes de terre
        cherry/cherries = f Kirsche/Kirschen = f cerise/cerises
        banana/bananas = f Banane/Bananen = f banane/bananes
        mushroom/mushrooms = m Pilz/Pilze = m champignon/champignons
        fish/fish = m Fisch/Fische = m poisson/poissons
        sandwich/sandwiches = n Brötchen/Brötchen = m sandwich/sandwichs
        cake/cakes = m Kuchen/Kuchen = m gâteau/gâteaux
        """),
    "people": _nouns("""
        visitor/visitors = m Besucher/Besucher = m visiteur/visiteurs
        guest/guests = m Gast/Gäste = m invité/invités
        teacher/teachers = m Lehrer/Lehrer = m professeur/professeurs
        child/children = n Kind/Kinder = m enfant/enfants
        woman/women = f Frau/Frauen = f femme/femmes
        player/players = m Spieler/Spieler = m joueur/joueurs
        worker/workers = m Arbeiter/Arbeiter = m ouvrier/ouvriers
        friend/friends = m Freund/Freunde = m ami/amis
        girl/girls = n Mädchen/Mädchen = f fille/filles
        reader/readers = m Leser/Leser = m lecteur/lecteurs
        """),
    "texts": _nouns("""
        letter/letters = m Brief/Briefe = f lettre/lettres
        page/pages = f Seite/Seiten = f page/pages
        question/questions = f Frage/Fragen = f question/questions
        message/messages = f Nachricht/Nachrichten = m message/messages
        report/reports = m Bericht/Berichte = m rapport/rapports
        poem/poems = n Gedicht/Gedichte = m poème/poèmes
        word/words = n Wort/Wörter = m mot/mots
        sentence/sentences = m Satz/Sätze = f phrase/phrases
        story/stories = f Geschichte/Geschichten = f histoire/histoires
        """),
    "distances": _nouns("""
        kilometre/kilometres = m Kilometer/Kilometer = m kilomètre/kilomètres
        metre/metres = m Meter/Meter = m mètre/mètres
        mile/miles = f Meile/Meilen = m mille/milles
        """),
    "grams": _nouns("gram/grams = n Gramm/Gramm = m gramme/grammes"),
    "minutes": _nouns("""
        minute/minutes = f Minute/Minuten = f minute/minutes
        second/seconds = f Sekunde/Sekunden = f seconde/secondes
        """),
    "points": _nouns("""
        point/points = m Punkt/Punkte = m point/points
        goal/goals = n Tor/Tore = m but/buts
        """),
    "persons": _nouns("""
        visitor/visitors = m Besucher/Besucher = m visiteur/visiteurs
        passenger/passengers = m Fahrgast/Fahrgäste = m passager/passagers
        player/players = m Spieler/Spieler = m joueur/joueurs
        guest/guests = m Gast/Gäste = m invité/invités
        woman/women = f Frau/Frauen = f femme/femmes
        runner/runners = m Läufer/Läufer = m coureur/coureurs
        child/children = n Kind/Kinder = m enfant/enfants
        girl/girls = n Mädchen/Mädchen = f fille/filles
        """),
    "events": _nouns("""
        race/races = n Rennen/Rennen = f course/courses
        match/matches = n Spiel/Spiele = m match/matchs
        concert/concerts = n Konzert/Konzerte = m concert/concerts
        victory/victories = m Sieg/Siege = f victoire/victoires
        evening/evenings = m Abend/Abende = f soirée/soirées
        """),
}

# Units after a decimal number, where they are invariable in German.
UNITS = {
    "lengths": ("kilometres Kilometer kilomètres", "metres Meter mètres"),
    "weights": ("kilos Kilo kilos", "pounds Pfund livres"),
    "litres": ("litres Liter litres",),
}
# Currencies by sign.
CURRENCIES: dict[str, Noun] = {
    "€": Noun("euro", "euros", "Euro", "Euro", "m", "euro", "euros", "m"),
    "$": Noun("dollar", "dollars", "Dollar", "Dollar", "m", "dollar", "dollars", "m"),
    "£": Noun("pound", "pounds", "Pfund", "Pfund", "n", "livre", "livres", "f"),
}


def _rows(table: str) -> list[tuple[str, ...]]:
    """Lines of cells between ``=`` signs."""
    return [tuple(cell.strip() for cell in line.split("=")) for line in table.strip().splitlines()]


# First names, the same in the three languages, by the French gender of their participles.
NAMES = {
    "f": ["Anna", "Clara", "Eva", "Julia", "Laura", "Maria", "Nina", "Sophie", "Emma", "Lisa"],
    "m": ["Paul", "Peter", "Thomas", "Martin", "Max", "David", "Daniel", "Simon", "Oscar", "Leo"],
}
# Other subjects, in the nominative, with the French gender.
PEOPLE = _rows("""
    my brother = mein Bruder = mon frère = m
    my sister = meine Schwester = ma sœur = f
    our neighbour = unser Nachbar = notre voisin = m
    her father = ihr Vater = son père = m
    my grandmother = meine Großmutter = ma grand-mère = f
    the teacher = die Lehrerin = la professeure = f
    the doctor = der Arzt = le médecin = m
    the director = der Direktor = le directeur = m
    our cousin = unsere Cousine = notre cousine = f
    the engineer = die Ingenieurin = l'ingénieure = f
    the farmer = der Bauer = le fermier = m
    the baker = der Bäcker = le boulanger = m
    my uncle = mein Onkel = mon oncle = m
    my aunt = meine Tante = ma tante = f
    the actress = die Schauspielerin = l'actrice = f
    the painter = der Maler = le peintre = m
    """)
CITIES = _rows("""
    Berlin = Berlin = Berlin
    Paris = Paris = Paris
    London = London = Londres
    Vienna = Wien = Vienne
    Munich = München = Munich
    Cologne = Köln = Cologne
    Geneva = Genf = Genève
    Brussels = Brüssel = Bruxelles
    Rome = Rom = Rome
    Milan = Mailand = Milan
    Venice = Venedig = Venise
    Athens = Athen = Athènes
    Lisbon = Lissabon = Lisbonne
    Warsaw = Warschau = Varsovie
    Prague = Prag = Prague
    Copenhagen = Kopenhagen = Copenhague
    Hamburg = Hamburg = Hambourg
    Amsterdam = Amsterdam = Amsterdam
    Oslo = Oslo = Oslo
    Dresden = Dresden = Dresde
    Basel = Basel = Bâle
    Lyon = Lyon = Lyon
    """)
WHEN = _rows("""
    Yesterday = Gestern = Hier
    Last week = Letzte Woche = La semaine dernière
    Last Monday = Letzten Montag = Lundi dernier
    Last Friday = Letzten Freitag = Vendredi dernier
    This morning = Heute Morgen = Ce matin
    Last year = Letztes Jahr = L'année dernière
    Last month = Letzten Monat = Le mois dernier
    In spring = Im Frühling = Au printemps
    In summer = Im Sommer = En été
    """)
# A thing with its definite article: English, German noun with its gender, French with article.
THINGS = _rows("""
    the sofa = n Sofa = le canapé
    the piano = n Klavier = le piano
    the guitar = f Gitarre = la guitare
    the umbrella = m Regenschirm = le parapluie
    the suitcase = m Koffer = la valise
    the camera = f Kamera = l'appareil photo
    the watch = f Uhr = la montre
    the ring = m Ring = la bague
    the carpet = m Teppich = le tapis
    the bed = n Bett = le lit
    the mirror = m Spiegel = le miroir
    the picture = n Bild = le tableau
    the cupboard = m Schrank = l'armoire
    the ticket = f Fahrkarte = le billet
    the dress = n Kleid = la robe
    the jacket = f Jacke = la veste
    the toy = n Spielzeug = le jouet
    the radio = n Radio = la radio
    """)
BUILDINGS = _rows("""
    The church = Die Kirche = L'église = e
    The bridge = Die Brücke = Le pont =
    The castle = Das Schloss = Le château =
    The school = Die Schule = L'école = e
    The tower = Der Turm = La tour = e
    The theatre = Das Theater = Le théâtre =
    The town hall = Das Rathaus = La mairie = e
    The station = Der Bahnhof = La gare = e
    """)
INGREDIENTS = _rows("""
    sugar = Zucker = de sucre
    flour = Mehl = de farine
    butter = Butter = de beurre
    rice = Reis = de riz
    cheese = Käse = de fromage
    """)
LIQUIDS = _rows("""
    water = Wasser = d'eau
    milk = Milch = de lait
    oil = Öl = d'huile
    wine = Wein = de vin
    """)
PLACES = _rows("""
    The museum = Das Museum = Le musée =
    The library = Die Bibliothek = La bibliothèque = e
    The shop = Der Laden = Le magasin =
    The swimming pool = Das Schwimmbad = La piscine = e
    The post office = Die Post = La poste = e
    The bank = Die Bank = La banque = e
    The market = Der Markt = Le marché =
    """)
VEHICLES = _rows("""
    The train = Der Zug = Le train
    The bus = Der Bus = Le bus
    The ferry = Die Fähre = Le ferry
    The night train = Der Nachtzug = Le train de nuit
    """)
MEETINGS = _rows("""
    The meeting = Die Sitzung = La réunion
    The concert = Das Konzert = Le concert
    The lesson = Der Unterricht = Le cours
    The film = Der Film = Le film
    The party = Das Fest = La fête
    The match = Das Spiel = Le match
    The exam = Die Prüfung = L'examen
    """)
