"""Public topics: a few hundred short phrases, the public points from which clustering starts.

Written for this project, out of nobody's data. Their embeddings tell a clusterer where texts may lie at all: from them
it learns projections and takes its first centres, at no cost. That something is missing here costs quality, not
privacy. A release depends on the list, so a plan's facts tell its digest, and a card shows them.
"""

import hashlib

from tasks.text.words import roots, tokens_of

_HOME = """
cooking a recipe for dinner; baking bread and cakes; healthy meals and nutrition; vegetarian and vegan food;
coffee and tea; wine, beer and cocktails; restaurants and eating out; grocery shopping; cleaning the house;
laundry and stains; home repair and tools; painting walls and decorating; furniture and interior design;
growing vegetables in a garden; house plants; dogs and training a puppy; cats and their behaviour;
pet health and the vet; babies and new parents; raising children; teenagers and school trouble; family conflict;
weddings and marriage; dating and relationships; divorce and separation; friendship and loneliness;
birthday parties and gifts; holidays and traditions; moving to a new home; renting a flat and landlords;
buying a house and mortgages; neighbours and noise; saving energy at home; electricity and wiring; plumbing and leaks;
sewing and knitting; fashion and clothes; hair and make-up; skin care; shoes and bags; home security;
recycling and waste
"""
_BODY = """
headache and migraine; fever and infection; back pain and posture; knee and joint injuries; allergies and asthma;
heart disease and blood pressure; diabetes and blood sugar; cancer diagnosis and treatment; pregnancy and birth;
sleep and insomnia; losing weight; building muscle at the gym; running and endurance training; yoga and stretching;
depression and sadness; anxiety and panic; stress and burnout; addiction and alcohol; smoking and quitting;
medication and side effects; vaccines and immunity; surgery and recovery; dental care; eyesight and glasses;
skin rashes; stomach pain and digestion; first aid in an emergency; visiting a doctor; hospital stay and nurses;
health insurance; physical therapy; medical history of a patient; vitamins and supplements; hearing and ears;
ageing and dementia; disability and access; mindfulness and meditation; therapy and counselling;
epidemics and viruses; genes and inherited disease
"""
_LEISURE = """
films and directors; actors and famous roles; television series; science fiction stories; horror films;
comedy and jokes; superheroes and comics; animated films for children; novels and authors; poems and rhymes;
writing a short story; fantasy worlds and dragons; crime novels and detectives; song lyrics; rock bands and albums;
classical music and operas; learning the guitar; piano and music theory; dancing; painting and famous artists;
drawing and illustration; photography and cameras; museums and exhibitions; theatre and plays;
video games and consoles; role-playing games; board games and puzzles; chess; riddles and trivia questions;
card games and gambling; football and soccer clubs; basketball players; baseball teams and records;
tennis tournaments; the olympic games; cycling; swimming; hiking and camping; fishing and hunting;
skiing and winter sports; martial arts and boxing; motor racing; cricket and rugby; golf; collecting coins and stamps;
crafts and do-it-yourself; celebrities and gossip; podcasts and radio; anime and manga; magic tricks;
birds and bird watching; astronomy for amateurs
"""
_PLACES = """
planning a holiday trip; flights and airports; hotels and bookings; sightseeing in a city; beaches and islands;
mountains and national parks; train journeys; road trips; visas and passports; capitals and countries;
rivers, lakes and seas; maps and geography; cities in europe; countries in africa; travelling in asia; south america;
states of america; canada; india and its culture; china and its history; japan and its customs;
australia and new zealand; the middle east; russia and its neighbours; britain and ireland; france and paris; germany;
italy and rome; spain and portugal; languages of the world; local food and markets;
bridges, towers and famous buildings; villages and country life; public transport and buses; traffic and parking;
buying a used car; car engines and repair; electric cars and batteries; motorcycles; ships and sailing;
aeroplanes and pilots; driving lessons and road rules
"""
_COMPUTING = """
programming in python; javascript and web pages; html and css layout; java classes and objects; c and c++ memory;
sql queries and databases; debugging an error message; algorithms and sorting; data structures; regular expressions;
unit tests and code review; version control with git; linux commands and shell scripts; windows settings;
apple computers and phones; mobile apps; cloud servers and deployment; containers and clusters;
computer networks and routers; wireless internet at home; passwords and account security;
hackers, viruses and malware; encryption and privacy; spreadsheets and formulas; word processing and documents;
presentations and slides; email problems; printers and scanners; buying a laptop; graphics cards and displays;
hard disks and backups; smart home devices; robots and automation; machine learning models;
neural networks and training; language models and chatbots; prompts for an assistant; image recognition;
statistics and data analysis; charts and visualisation; data cleaning; open source licences;
software design and architecture; game development; blockchain and bitcoin; social media accounts; search engines;
online shopping sites; streaming services; video editing; sound recording; user interface design;
technical documentation; microcontrollers and electronics; cables and connectors; operating system drivers;
file formats and conversion; application programming interfaces
"""
_SCIENCE = """
algebra and equations; geometry and angles; calculus and derivatives; probability and dice; logic and proofs;
prime numbers; word problems in arithmetic; units and conversion; physics of motion and forces;
electricity and magnetism; light and optics; quantum mechanics; relativity and time; atoms and particles;
chemical reactions; the periodic table and elements; acids and bases; organic chemistry and polymers;
cells and biology; dna and genetics; evolution and natural selection; the human brain; organs of the human body;
plants and photosynthesis; insects and spiders; fish and marine life; mammals and wild animals; dinosaurs and fossils;
snakes and reptiles; planets and the solar system; stars and galaxies; space travel and rockets;
satellites and telescopes; the moon; weather and storms; climate change; earthquakes and volcanoes;
rocks and minerals; oceans and currents; forests and deforestation; water and drought; farming and crops;
food science; materials and metals; bridges and civil engineering; engines and thermodynamics; nuclear power;
solar and wind energy; oil and gas; inventions and inventors; scientific method and experiments;
measurement and error; psychology of behaviour; sociology and groups; anthropology and cultures;
linguistics and grammar; archaeology and ruins
"""
_SOCIETY = """
elections and voting; presidents and prime ministers; parliament and new laws; political parties;
protests and social movements; war and soldiers; peace talks and treaties; terrorism and attacks;
refugees and immigration; human rights; courts and judges; police and crime; murder and trials; prisons;
lawyers and contracts; copyright and patents; privacy laws; taxes; government spending; the united nations;
international relations; guns and gun control; drugs and trafficking; racism and discrimination; women and equality;
gay and transgender rights; religion and churches; the bible and christianity; islam and the koran;
judaism and israel; buddhism and hinduism; atheism and belief; ethics and moral dilemmas;
philosophy and the meaning of life; death and grief; ancient greece and rome; the middle ages and kings;
world war two; colonies and empires; revolutions; the cold war; slavery and civil rights; ancient egypt;
famous people and their lives; royal families; newspapers and journalism; fake news and propaganda;
charity and volunteers; poverty and inequality; housing and homelessness; population and cities;
natural disasters and rescue; accidents and safety; military weapons; spies and secret services;
corruption and scandals; conspiracy theories; borders and minorities
"""
_WORK = """
applying for a job; writing a resume; job interviews; salary and promotion; conflict with a boss; working from home;
meetings and notes; project management and deadlines; leadership and teams; starting a company; business plans;
startups and investors; marketing campaigns; advertising slogans; product descriptions; selling to customers;
customer service complaints; refunds and returns; online reviews; market research; company profits and results;
mergers and takeovers; shares and the stock market; interest rates and central banks; inflation and prices;
unemployment and the economy; trade and tariffs; banks and loans; credit cards and debt; saving and budgets;
pensions and retirement; insurance claims; accounting and invoices; real estate investment;
supply chains and factories; shipping and delivery; human resources; training of staff; safety at work;
office equipment; contracts with suppliers; non-profit organisations; aviation industry; car makers; retail shops;
hotels and tourism trade; agriculture business; fashion brands; phone companies; writing a business email;
formal letters; speeches and toasts; event planning; productivity and time management; career change; nursing jobs;
teaching jobs
"""
_LEARNING = """
homework help; essays and structure; summarising a text; translating a sentence; correcting grammar and spelling;
learning english; learning spanish or french; vocabulary and synonyms; meaning of a word; abbreviations and acronyms;
proverbs and idioms; reading comprehension; classifying items into groups; extracting names from a text;
making a list of ideas; brainstorming names; comparing two things; giving step by step instructions;
explaining a concept simply; rewriting a paragraph; writing dialogue; writing a letter; writing a social media post;
creative writing prompts; jokes and puns; quizzes with answers; multiple choice questions; universities and admission;
scholarships and student life; school lessons and teachers; exams and studying; research papers and citations;
libraries and books; kindergarten and play; online courses; dates and calendars; time zones and clocks;
numbers and counting; colours and shapes; measurements of people and things; names and their origin;
who wrote or invented something; what a place is known for; when something happened; how something works;
how many there are; definitions of terms; opinions and recommendations; feelings in a sentence; positive reviews;
negative reviews; small talk and greetings; advice for life; motivation and habits; personal stories;
dreams and hopes; hypothetical questions; questions about the assistant itself
"""

PUBLIC_TOPICS: tuple[str, ...] = tuple(
    " ".join(phrase.split())
    for part in (_HOME, _BODY, _LEISURE, _PLACES, _COMPUTING, _SCIENCE, _SOCIETY, _WORK, _LEARNING)
    for phrase in part.split(";")
)
"""All phrases, in a fixed order."""


def topic_words() -> list[str]:
    """Return the words of the phrases that could be keywords, in the order of the alphabet; of plurals the plural."""
    words = sorted(
        {word for phrase in PUBLIC_TOPICS for word in tokens_of(phrase)}, key=lambda word: (-len(word), word)
    )
    return sorted({next(iter(roots(word)), word): word for word in reversed(words)}.values())


def digest() -> str:
    """Return the SHA-256 of the list, 64 hexadecimal digits."""
    return hashlib.sha256("\n".join(PUBLIC_TOPICS).encode()).hexdigest()
