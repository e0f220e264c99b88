"""The words of the toy grammar: their English and German forms, and how they combine."""

from typing import FrozenSet, List, NamedTuple


class Noun(NamedTuple):
    english: str
    english_plural: str
    gender: str  # m, f or n
    german: str
    german_plural: str
    german_genitive: str
    kinds: FrozenSet[str]


class Adjective(NamedTuple):
    english: str
    german: str  # the stem, to which endings are added
    kinds: FrozenSet[str]


class Verb(NamedTuple):
    english: str
    english_past: str
    prefix: str  # separable prefix or ""
    german: str  # infinitive without the prefix
    changed_stem: str  # stem with "du" and "er", or "" if it does not change
    participle: str
    auxiliary: str
    dative: str  # the kind of its dative object, or ""
    accusative: FrozenSet[str]

    @property
    def infinitive(self) -> str:
        return self.prefix + self.german


class Adverb(NamedTuple):
    english_words: str
    german_words: str
    tenses: FrozenSet[str]  # present, past, modal

    def english(self) -> List[str]:
        return self.english_words.split()

    def german(self) -> List[str]:
        return self.german_words.split()


# ich, du, er, wir, sie
IRREGULAR = {
    "haben": "habe hast hat haben haben",
    "sein": "bin bist ist sind sind",
    "waren": "war warst war waren waren",
    "wissen": "weiß weißt weiß wissen wissen",
    "werden": "werde wirst wird werden werden",
    "können": "kann kannst kann können können",
    "sollen": "soll sollst soll sollen sollen",
    "dürfen": "darf darfst darf dürfen dürfen",
    "wollen": "will willst will wollen wollen",
    "müssen": "muss musst muss müssen müssen",
}

NOUN_TABLE = """
man/men, der Mann/Männer/Mannes, person
woman/women, die Frau/Frauen/Frau, person
child/children, das Kind/Kinder/Kindes, person
boy/boys, der Junge/Jungen/Jungen, person
girl/girls, das Mädchen/Mädchen/Mädchens, person
teacher/teachers, der Lehrer/Lehrer/Lehrers, person
doctor/doctors, der Arzt/Ärzte/Arztes, person
student/students, der Student/Studenten/Studenten, person
neighbour/neighbours, der Nachbar/Nachbarn/Nachbarn, person
friend/friends, der Freund/Freunde/Freundes, person
sister/sisters, die Schwester/Schwestern/Schwester, person
brother/brothers, der Bruder/Brüder/Bruders, person
mother/mothers, die Mutter/Mütter/Mutter, person
daughter/daughters, die Tochter/Töchter/Tochter, person
guest/guests, der Gast/Gäste/Gastes, person
actress/actresses, die Schauspielerin/Schauspielerinnen/Schauspielerin, person
dog/dogs, der Hund/Hunde/Hundes, animal
cat/cats, die Katze/Katzen/Katze, animal
horse/horses, das Pferd/Pferde/Pferdes, animal
bird/birds, der Vogel/Vögel/Vogels, animal
bear/bears, der Bär/Bären/Bären, animal
cow/cows, die Kuh/Kühe/Kuh, animal
book/books, das Buch/Bücher/Buches, thing
letter/letters, der Brief/Briefe/Briefes, thing opens
picture/pictures, das Bild/Bilder/Bildes, thing
newspaper/newspapers, die Zeitung/Zeitungen/Zeitung, thing
key/keys, der Schlüssel/Schlüssel/Schlüssels, thing
bag/bags, die Tasche/Taschen/Tasche, thing opens
bicycle/bicycles, das Fahrrad/Fahrräder/Fahrrads, thing
chair/chairs, der Stuhl/Stühle/Stuhls, thing
lamp/lamps, die Lampe/Lampen/Lampe, thing
coat/coats, der Mantel/Mäntel/Mantels, thing
shirt/shirts, das Hemd/Hemden/Hemdes, thing
flower/flowers, die Blume/Blumen/Blume, thing
apple/apples, der Apfel/Äpfel/Apfels, thing
radio/radios, das Radio/Radios/Radios, thing
window/windows, das Fenster/Fenster/Fensters, opens
door/doors, die Tür/Türen/Tür, opens
garden/gardens, der Garten/Gärten/Gartens, place
city/cities, die Stadt/Städte/Stadt, place
house/houses, das Haus/Häuser/Hauses, place
station/stations, der Bahnhof/Bahnhöfe/Bahnhofs, place
school/schools, die Schule/Schulen/Schule, place
hotel/hotels, das Hotel/Hotels/Hotels, place
forest/forests, der Wald/Wälder/Waldes, place
kitchen/kitchens, die Küche/Küchen/Küche, place
village/villages, das Dorf/Dörfer/Dorfes, place
"""

ADJECTIVE_TABLE = """
old, alt, person animal thing opens place
young, jung, person animal
small, klein, person animal thing opens place
big, groß, animal thing opens place
new, neu, thing opens place
beautiful, schön, person animal thing place
red, rot, thing opens
heavy, schwer, thing
cheap, billig, thing
interesting, interessant, thing
friendly, freundlich, person animal
happy, glücklich, person animal
sad, traurig, person animal
famous, berühmt, person place
rich, reich, person
quiet, ruhig, person animal place
"""

# English, past, German (+ follows a separable prefix)/stem with du and er, participle,
# auxiliary, kind of the dative object, kinds of the accusative object
VERB_TABLE = """
be, was, sein, gewesen, sein, ,
sleep, slept, schlafen/schläf, geschlafen, haben, ,
work, worked, arbeiten, gearbeitet, haben, ,
laugh, laughed, lachen, gelacht, haben, ,
dance, danced, tanzen, getanzt, haben, ,
sing, sang, singen, gesungen, haben, ,
wait, waited, warten, gewartet, haben, ,
arrive, arrived, an+kommen, angekommen, sein, ,
return, returned, zurück+kommen, zurückgekommen, sein, ,
get up, got up, auf+stehen, aufgestanden, sein, ,
see, saw, sehen/sieh, gesehen, haben, , person animal thing
love, loved, lieben, geliebt, haben, , person animal
find, found, finden, gefunden, haben, , person animal thing
look for, looked for, suchen, gesucht, haben, , person animal thing
forget, forgot, vergessen/vergiss, vergessen, haben, , person thing
visit, visited, besuchen, besucht, haben, , person
buy, bought, kaufen, gekauft, haben, , animal thing
sell, sold, verkaufen, verkauft, haben, , animal thing
carry, carried, tragen/träg, getragen, haben, , thing
paint, painted, malen, gemalt, haben, , person animal thing
open, opened, auf+machen, aufgemacht, haben, , opens
close, closed, zu+machen, zugemacht, haben, , opens
call, called, an+rufen, angerufen, haben, , person
invite, invited, ein+laden/läd, eingeladen, haben, , person
collect, collected, ab+holen, abgeholt, haben, , person thing
bring along, brought along, mit+bringen, mitgebracht, haben, , animal thing
look at, looked at, an+sehen/sieh, angesehen, haben, , person animal thing
wake, woke, auf+wecken, aufgeweckt, haben, , person animal
help, helped, helfen/hilf, geholfen, haben, person,
thank, thanked, danken, gedankt, haben, person,
answer, answered, antworten, geantwortet, haben, person,
follow, followed, folgen, gefolgt, sein, person,
listen to, listened to, zu+hören, zugehört, haben, person,
give, gave, geben/gib, gegeben, haben, person, thing
show, showed, zeigen, gezeigt, haben, person, thing
send, sent, schicken, geschickt, haben, person, thing
bring, brought, bringen, gebracht, haben, person, thing
say, said, sagen, gesagt, haben, ,
know, knew, wissen, gewusst, haben, ,
hope, hoped, hoffen, gehofft, haben, ,
believe, believed, glauben, geglaubt, haben, ,
"""

ADVERB_TABLE = """
today, heute, present past modal
now, jetzt, present modal
sometimes, manchmal, present past
yesterday, gestern, past
last year, letztes Jahr, past
tomorrow, morgen, present modal
next week, nächste Woche, present modal
every morning, jeden Morgen, present past modal
in the evening, am Abend, present past modal
on Monday, am Montag, present past modal
in summer, im Sommer, present past modal
"""


def rows(table: str) -> List[List[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in table.strip().splitlines()]


def read_noun(english: str, german: str, kinds: str) -> Noun:
    article, forms = german.split()
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    singular, plural = english.split("/")
    nominative, german_plural, genitive = forms.split("/")
    fits = frozenset(kinds.split())
    return Noun(singular, plural, gender, nominative, german_plural, genitive, fits)


def read_verb(english, past, german, participle, auxiliary, dative, accusative) -> Verb:
    infinitive, _, stem = german.partition("/")
    prefix, _, infinitive = infinitive.rpartition("+")
    takes = frozenset(accusative.split())
    return Verb(english, past, prefix, infinitive, stem, participle, auxiliary, dative, takes)


NOUNS = {noun.english: noun for noun in (read_noun(*row) for row in rows(NOUN_TABLE))}
ADJECTIVES = {
    en: Adjective(en, de, frozenset(kinds.split())) for en, de, kinds in rows(ADJECTIVE_TABLE)
}
VERBS = {verb.english: verb for verb in (read_verb(*row) for row in rows(VERB_TABLE))}
ADVERBS = {en: Adverb(en, de, frozenset(tenses.split())) for en, de, tenses in rows(ADVERB_TABLE)}
BELIEF_VERBS = ("say", "know", "hope", "believe")  # take a that-clause
