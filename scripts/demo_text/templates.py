"""The sentence patterns of the demo text: English, German and French in each line.

``{slot:form}`` is filled by phrases.py. In English the form names the group to draw from
(``{count:food}``); in German it is the case, by default accusative; in French a variant, if any.
A second slot of the same kind has a digit (``{date2}``). ``de~`` is the French *de* before a name,
with its elision. ``{price}`` is written with a sign ("3,50 €") and in German and French always
comes before a full stop: Moses detokenisation attaches a currency sign to the word after it.
"""

_TABLE = """
{who} bought {count:goods} in {city}. = {who} hat in {city} {count} gekauft. = {who} a acheté {count} à {city}.
{when} {who} sold {count:goods}. = {when} hat {who} {count} verkauft. = {when}, {who} a vendu {count}.
{place} ordered {many:goods}. = {place} hat {many} bestellt. = {place} a commandé {many}.
{thing} costs {price}. = {thing:nom} kostet {price}. = {thing} coûte {price}.
{when} {thing} cost {price}. = {when} kostete {thing:nom} {price}. = {when}, {thing} coûtait {price}.
{who} paid {sum} for {thing}. = {who} hat {sum} für {thing} bezahlt. = {who} a payé {sum} pour {thing}.
{who} wants {sum} for {thing}. = {who} will {sum} für {thing} haben. = {who} veut {sum} pour {thing}.
Together, {many:food} cost {price}. = Zusammen kosten {many:nom} {price}. = Ensemble, {many} coûtent {price}.
The bill comes to {price}. = Die Rechnung beträgt {price}. = La facture s'élève à {price}.
The old price was {price}. = Der alte Preis war {price}. = L'ancien prix était de {price}.
{who} still owes me {sum}. = {who} schuldet mir noch {sum}. = {who} me doit encore {sum}.
{who} lent {sum} to {name}. = {who} hat {name} {sum} geliehen. = {who} a prêté {sum} à {name}.
In {year}, {thing} cost {price}. = Im Jahr {year} kostete {thing:nom} {price}. = En {year}, {thing} coûtait {price}.
{vehicle} to {city} leaves at {time}. = {vehicle} nach {city} fährt um {time} ab. = {vehicle} pour {city} part à {time}.
{vehicle} from {city} arrives at {time}. = {vehicle} aus {city} kommt um {time} an. = {vehicle} de~{city} arrive à {time}.
{who} will be in {city} at {time}. = {who} wird um {time} in {city} sein. = {who} sera à {city} à {time}.
{who} has to leave before {time}. = {who} muss vor {time} gehen. = {who} doit partir avant {time}.
{who} is in seat {num}. = {who} sitzt auf Platz {num}. = {who} est à la place {num}.
{who} is staying in room {num}. = {who} wohnt in Zimmer {num}. = {who} loge dans la chambre {num}.
From {city} to {city2} it is {many:distances}. = Von {city} nach {city2} sind es {many:nom}. = De~{city} à {city2}, il y a {many}.
{who} walked {measure:lengths} in {city}. = {who} ist in {city} {measure} gelaufen. = {who} a marché {measure} à {city}.
Bus {num} stops in front of the station. = Bus {num} hält vor dem Bahnhof. = Le bus {num} s'arrête devant la gare.
{who} travelled to {city} on {date}. = {who} ist am {date} nach {city} gefahren. = {who} est allé{e} à {city} le {date}.
{place} is closed until {date}. = {place} ist bis zum {date} geschlossen. = {place} est fermé{f} jusqu'au {date}.
{place} opens at {time}. = {place} öffnet um {time}. = {place} ouvre à {time}.
{meeting} starts at {time}. = {meeting} beginnt um {time}. = {meeting} commence à {time}.
{meeting} is on {date} at {time}. = {meeting} ist am {date} um {time}. = {meeting} a lieu le {date} à {time}.
{meeting} lasts {many:minutes}. = {meeting} dauert {many}. = {meeting} dure {many}.
{who} has an appointment in {city} on {date}. = {who} hat am {date} einen Termin in {city}. = {who} a rendez-vous à {city} le {date}.
Please call {name} at {time}. = Bitte rufen Sie {name} um {time} an. = Veuillez appeler {name} à {time}.
Can we meet in {city} on {date}? = Können wir uns am {date} in {city} treffen? = Pouvons-nous nous voir à {city} le {date} ?
{name} was born on {date}. = {name} wurde am {date} geboren. = {name} est né{e} le {date}.
{name} was born in {city} in {year}. = {name} wurde im Jahr {year} in {city} geboren. = {name} est né{e} à {city} en {year}.
{building} was built in {year}. = {building} wurde im Jahr {year} gebaut. = {building} a été construit{f} en {year}.
{building} in {city} burned down in {year}. = {building} in {city} brannte im Jahr {year} ab. = {building} de~{city} a brûlé en {year}.
{name} has lived in {city} since {year}. = {name} lebt seit {year} in {city}. = {name} habite à {city} depuis {year}.
In {year}, {many:people} came to {city}. = Im Jahr {year} kamen {many:nom} nach {city}. = En {year}, {many} sont venu{p} à {city}.
The letter to {name} is dated {date}. = Der Brief an {name} ist vom {date}. = La lettre à {name} est datée du {date}.
The king died in {city} on {date}. = Der König starb am {date} in {city}. = Le roi est mort à {city} le {date}.
The war ended in {year}. = Der Krieg endete im Jahr {year}. = La guerre s'est terminée en {year}.
The exhibition runs from {date} to {date2}. = Die Ausstellung läuft vom {date} bis zum {date2}. = L'exposition dure du {date} au {date2}.
This is {ordinal:events} in {city}. = Das ist {ordinal:nom} in {city}. = C'est {ordinal} à {city}.
{many:people} saw the match in {city}. = {many:nom} haben das Spiel in {city} gesehen. = {many} ont vu le match à {city}.
{who} scored {count:points} in {year}. = Im Jahr {year} hat {who} {count} erzielt. = {who} a marqué {count} en {year}.
{ordinal:persons} won a prize. = {ordinal:nom} hat einen Preis gewonnen. = {ordinal} a gagné un prix.
{who} is waiting for {ordinal:persons}. = {who} wartet auf {ordinal}. = {who} attend {ordinal}.
{who} spoke with {ordinal:persons}. = {who} hat mit {ordinal:dat} gesprochen. = {who} a parlé avec {ordinal}.
{who} read {ordinal:texts} this evening. = {who} hat heute Abend {ordinal} gelesen. = {who} a lu {ordinal} ce soir.
For this recipe one needs {count:food}. = Für dieses Rezept braucht man {count}. = Pour cette recette, il faut {count}.
Add {many:grams} of {ingredient}. = Geben Sie {many} {ingredient} dazu. = Ajoutez {many} {ingredient}.
{who} drank {measure:litres} of {liquid}. = {who} hat {measure} {liquid} getrunken. = {who} a bu {measure} {liquid}.
{thing} weighs {measure:weights}. = {thing:nom} wiegt {measure}. = {thing} pèse {measure}.
{building} is {measure:lengths} away. = {building} ist {measure} entfernt. = {building} est à {measure}.
{who} counted {count:goods} in the hall. = {who} hat in der Halle {count} gezählt. = {who} a compté {count} dans la salle.
{who} wrote {count:texts} in {city}. = {who} hat in {city} {count} geschrieben. = {who} a écrit {count} à {city}.
{who} travels with {count:people} to {city}. = {who} reist mit {count:dat} nach {city}. = {who} voyage avec {count} à {city}.
Please open the book at page {num}. = Bitte öffnen Sie das Buch auf Seite {num}. = Veuillez ouvrir le livre à la page {num}.
{name} lives at number {num}. = {name} wohnt in Nummer {num}. = {name} habite au numéro {num}.
It is {time} in {city}. = In {city} ist es {time}. = À {city}, il est {time}.
{when} {who} slept until {time}. = {when} hat {who} bis {time} geschlafen. = {when}, {who} a dormi jusqu'à {time}.
The factory made {many:goods} in {year}. = Im Jahr {year} hat die Fabrik {many} hergestellt. = L'usine a fabriqué {many} en {year}.
{who} ate {count:food} and paid {price}. = {who} hat {count} gegessen und zahlte {price}. = {who} a mangé {count} et a payé {price}.
"""  # noqa: E501  (a table reads better unbroken)

TEMPLATES: list[tuple[str, str, str]] = [
    (english, german, french)
    for english, german, french in (line.split(" = ") for line in _TABLE.strip().splitlines())
]
