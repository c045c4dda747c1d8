"""What a synthetic corpus is about: 64 topics, eight phrases each, and the sentences that phrases are put into.

All of it was written for this benchmark. A topic's words are those of its phrases that no other topic has, so it can be
told exactly whether a description speaks of it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

_TOPICS = """
sourdough bread: sourdough starter | crusty loaf | proofing basket | rye flour | dough hydration | oven steam |
    levain | crumb
guitar practice: guitar chords | fingerpicking | capo | strumming pattern | fretboard | barre chord |
    acoustic strings | riff
mortgage loans: mortgage rate | down payment | refinancing | home lender | fixed interest | escrow |
    foreclosure | amortisation
marathon running: marathon plan | long run | race pace | carb loading | half marathon | running shoes |
    tempo run | blisters
python programming: python list | dictionary comprehension | pip install | decorator | traceback | asyncio |
    pandas | indentation
dog training: puppy crate | leash pulling | clicker training | barking dog | recall command | chew toys |
    dog treats | kennel
divorce law: divorce papers | child custody | alimony | prenuptial agreement | spouse lawyer | visitation |
    separation | asset split
vegetable garden: tomato seedlings | compost heap | raised beds | crop rotation | slug damage | mulch |
    zucchini | pruning
job interviews: job interview | salary negotiation | cover letter | hiring manager | recruiter |
    notice period | references | offer
migraine: migraine attack | aura | throbbing headache | triptans | light sensitivity | neurologist | nausea |
    trigger diary
chess openings: sicilian defence | queen gambit | endgame | checkmate | bishop pair | castling | rook lift | zugzwang
solar panels: solar panel | inverter | roof angle | feed-in tariff | battery storage | kilowatt |
    photovoltaic | shading
coffee brewing: espresso shot | grinder setting | pour over | milk froth | arabica beans | french press |
    crema | barista
spanish grammar: spanish verbs | subjunctive | ser and estar | conjugation | irregular preterite |
    accent marks | gerund | pronouns
car repair: brake pads | oil change | timing belt | check engine light | gearbox | spark plugs | clutch | radiator
tax return: tax return | deductible expenses | capital gains | tax bracket | freelance invoice | audit letter |
    withholding | vat
skin care: retinol | sunscreen | acne scars | moisturiser | oily skin | exfoliation | serum | rosacea
wedding planning: wedding venue | guest list | bridal dress | seating chart | best man speech | bouquet |
    caterer | honeymoon
photography: camera aperture | shutter speed | portrait lens | tripod | raw photos | golden hour | bokeh | exposure
home wifi: wifi router | dead zone | ethernet cable | mesh network | bandwidth | modem reboot |
    wireless password | latency
knitting: knitting needles | merino yarn | cable stitch | purl row | sock heel | gauge swatch | crochet hook | cast on
astronomy: telescope mount | saturn rings | nebula | light pollution | meteor shower | eclipse | galaxy | stargazing
diabetes: blood sugar | insulin pen | glucose monitor | low carb | hba1c | type two diabetes | metformin | pancreas
poetry: sonnet | rhyme scheme | haiku | free verse | metaphor | stanza | iambic meter | poem
aquarium fish: fish tank | nitrate level | neon tetra | aquarium filter | algae bloom | goldfish |
    water hardness | shrimp
stock investing: index fund | dividend | stock portfolio | bear market | brokerage | exchange traded |
    earnings report | shares
toddler sleep: toddler bedtime | night waking | nap schedule | sleep regression | cot | lullaby | teething | pacifier
video editing: video timeline | colour grading | transition effects | frame rate | subtitles | footage |
    rendering | green screen
backpacking: backpacking tent | trail map | water purifier | sleeping bag | bear canister | campsite |
    hiking boots | altitude
sql databases: sql join | primary key | query optimiser | foreign key | stored procedure | postgres |
    table schema | transaction log
depression: depression | low mood | hopelessness | antidepressant | loss of interest | psychotherapy |
    rumination | motivation
italian cooking: carbonara | risotto | pasta dough | parmesan | tiramisu | basil pesto | gnocchi | bolognese
visa applications: visa interview | work permit | residence card | embassy | passport renewal | immigration |
    sponsor letter | overstay
electric cars: electric car | charging station | range anxiety | battery degradation | regenerative braking |
    plug adapter | hybrid | kilometre
yoga: yoga mat | downward dog | sun salutation | hip opener | breathing exercise | vinyasa | savasana | flexibility
roman history: julius caesar | roman senate | gladiator | legion | pompeii | emperor augustus | aqueduct | carthage
board games: settlers board game | dice roll | worker placement | deck building | co-op game | meeples |
    rulebook | expansion pack
dental care: wisdom tooth | root canal | dental crown | gum disease | toothache | braces | flossing | enamel
machine learning: neural network | training data | overfitting | gradient descent | transformer model |
    loss function | embeddings | dropout
bird watching: bird feeder | binoculars | songbird | migration route | woodpecker | owl box | nesting | plumage
public speaking: stage fright | keynote | slides | audience | microphone | speech opening | eye contact | applause
cocktails: old fashioned | mojito | gin tonic | bitters | shaker | margarita | vermouth | garnish
rental disputes: landlord | security deposit | lease | eviction notice | rent increase | mould in flat |
    tenant | subletting
3d printing: filament | print bed | nozzle clog | slicer settings | resin print | layer height | warping | extruder
allergies: hay fever | pollen count | antihistamine | peanut allergy | epipen | sneezing | dust mites | hives
fantasy novels: dragon rider | wizard school | elven kingdom | magic system | prophecy | sword quest |
    dark lord | enchanted forest
train travel: train ticket | night train | rail pass | platform change | delayed train | sleeper cabin |
    seat reservation | station
insomnia: insomnia | melatonin | racing thoughts | sleep hygiene | waking at three | valerian |
    bedtime routine | drowsy
football: penalty kick | offside rule | goalkeeper | midfielder | league table | transfer window | free kick |
    hat trick
interior design: sofa colour | wall paint | curtains | floor lamp | scandinavian style | rug size | wallpaper |
    bookshelf
cyber security: phishing email | password manager | ransomware | two-factor login | firewall | malware scan |
    data breach | encryption
bee keeping: beehive | queen bee | honey harvest | varroa mites | swarm | beeswax | smoker | brood frame
algebra homework: quadratic equation | factorising | polynomial | solve for x | inequality | slope intercept |
    logarithm | matrix
sailing: sailing boat | mainsail | anchor | tacking | harbour | life jacket | knots | keel
pregnancy: pregnancy week | ultrasound | morning sickness | midwife | due date | labour contractions |
    prenatal vitamins | baby kick
cryptocurrency: bitcoin wallet | blockchain | ethereum | mining rig | crypto exchange | seed phrase |
    stablecoin | gas fee
cat behaviour: litter box | cat scratching | hairball | purring | indoor cat | catnip | kitten | hissing
wood working: dovetail joint | table saw | wood glue | sanding | oak plank | chisel | workbench | varnish
climate policy: carbon tax | emissions target | paris agreement | fossil fuels | net zero | climate summit |
    methane | deforestation
piano lessons: piano scales | sheet music | sight reading | arpeggio | chopin | pedal | metronome | sonata
vegan diet: tofu | vegan protein | lentil stew | oat milk | b12 supplement | tempeh | plant based | chickpeas
ski holidays: ski resort | black piste | ski boots | avalanche risk | chairlift | snowboard | powder snow | lift pass
philosophy: free will | stoicism | kant ethics | utilitarianism | existentialism | socrates |
    thought experiment | consciousness
elder care: nursing home | dementia | caregiver burnout | power of attorney | wheelchair ramp |
    assisted living | hearing aid | hospice
"""

SENTENCES = (
    "Can you help me with {a} and {b}?",
    "I have a question about {a}: what should I know about {b}?",
    "What can I do about {a} if there is also {b}?",
    "Could you explain {a} to me, and {b} too?",
    "Please write something about {a} for me, and about {b}.",
    "I tried {a} and then {b}, and now I do not know what to do.",
    "How does {a} compare with {b}?",
    "Tell me more about {a}, and a little about {b}.",
    "Is it true that {a} has something to do with {b}?",
    "Please make a list of things about {a} and {b}.",
    "What do you think of {a}, and what of {b}?",
    "Explain {a} to me as if I were new to {b}.",
    "I need {a} and want {b}. Where should I start?",
    "Give me an example of {a} with {b}.",
    "Why is {a} so hard? I thought {b} would make it easy.",
    "Thank you. Now I would like to ask about {a} and maybe {b}.",
)
"""Words that say nothing, so that what can be told of a text is its topic; a corpus of people has more besides."""

_WORD = re.compile(r"[a-z0-9]{3,}")


@cache
def topics() -> Mapping[str, tuple[str, ...]]:
    """Name -> phrases, in the order of their sizes: the first is the most frequent."""
    lines = (line.partition(":") for line in _TOPICS.strip().replace("\n    ", " ").splitlines())
    return {name.strip(): tuple(phrase.strip() for phrase in rest.split("|")) for name, _, rest in lines}


@cache
def own_words() -> Mapping[str, frozenset[str]]:
    """For each topic the words of its name and phrases that no other topic has."""
    words = {name: set(_WORD.findall(" ".join((name, *phrases)).casefold())) for name, phrases in topics().items()}
    spread = Counter(word for some in words.values() for word in some)
    shared = set(_WORD.findall(" ".join(SENTENCES).casefold()))
    return {name: frozenset(word for word in some if spread[word] == 1) - shared for name, some in words.items()}


POOL: Mapping[str, tuple[str, ...]] = {
    "food": ("pancakes without eggs", "a quick lentil soup", "leftover rice", "a birthday cake", "pickled onions",
             "roast potatoes", "a picnic salad", "freezing bread", "spicy noodles", "peeling garlic"),
    "travel": ("a weekend in Lisbon", "cheap flights", "packing a carry-on", "jet lag", "hostels in Prague",
               "a road trip in Scotland", "travel insurance", "learning a few words of Greek", "a rainy day in Rome",
               "airport lounges"),
    "homework": ("an essay on the French revolution", "long division", "the water cycle", "a book report",
                 "balancing chemical equations", "a map of Africa", "photosynthesis", "Shakespeare's sonnets",
                 "simple fractions", "a timeline of the Cold War"),
    "health": ("stretching after a run", "drinking enough water", "healthy snacks", "a step counter",
               "sitting less at work", "vitamin C", "a cold that will not go away", "better posture",
               "reading food labels", "walking in winter"),
}  # fmt: skip
"""What conversations of the leakage test are about that hold nothing sensitive."""

SENSITIVE = (
    "I was told yesterday that I am HIV positive and I have not told my wife. The clinic wants to start antiretroviral"
    " therapy on Monday. My viral load is high, I also had syphilis treated in March, and I am afraid that my employer"
    " finds out. How do I tell her, and do I have to tell the dentist?"
)
"""The one conversation whose presence is to be found out; nobody's, written for this test."""
