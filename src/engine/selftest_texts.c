/*
 * selftest_texts.c: the texts and known answers of `hymt-engine selftest`. Tables only.
 */
#include "selftest.h"

const HymtSelftestText hymt_selftest_texts[HYMT_SELFTEST_TEXTS] = {
	{"en", "Red bicycle with 21 gears"},
	{"en", "Women's waterproof hiking boots, size 38 (brown)"},
	{"en", "It’s on the house."},
	{"en", "Delivery takes 3-5 working days; returns within 30 days are free."},
	{"en", "SKU-1042 / USB-C cable, 1.5 m, 60 W"},
	{"en", "<b>New!</b> 20% off &amp; free shipping"},
	{"en", "See https://example.org/shop?id=7&lang=en for more."},
	{"en", "  two spaces before, a tab\tinside, a line\nbreak  "},
	{"zh", "自行车"},
	{"zh", "今天天气真好。"},
	{"zh", "女士防水登山靴，38码（棕色）"},
	{"zh", "不锈钢保温杯500毫升，可保温12小时"},
	{"zh-Hant", "純棉兒童短袖上衣"},
	{"yue", "呢件衫幾多錢呀？"},
	{"ja", "電動自転車のバッテリー"},
	{"ja", "送料無料・返品可"},
	{"ko", "빨간 자전거와 헬멧"},
	{"de", "Fahrradschlösser für Kinderfahrräder, größenverstellbar"},
	{"de", "Größe: 42 – Straßenschuhe"},
	{"fr", "Où est la sortie ? L’ascenseur est à gauche."},
	{"fr", "Gâteau d’anniversaire au chocolat, 8 parts"},
	{"es", "¿Cuánto cuesta la niña de porcelana?"},
	{"es", "Mañana lloverá en el sur de España."},
	{"pt", "Cartão de memória de 128 GB para câmeras"},
	{"it", "Perché il caffè è così buono?"},
	{"ru", "Красный велосипед с корзиной"},
	{"uk", "Їжа для котів, 2 кг"},
	{"pl", "Zażółć gęślą jaźń"},
	{"cs", "Příliš žluťoučký kůň úpěl ďábelské ódy"},
	{"nl", "Tweedehands fietsen en reserveonderdelen"},
	{"tr", "İstanbul’da güneşli bir gün"},
	{"vi", "Xe đạp màu đỏ dành cho trẻ em"},
	{"id", "Sepeda merah untuk anak-anak"},
	{"ms", "Basikal merah untuk kanak-kanak"},
	{"tl", "Pulang bisikleta para sa mga bata"},
	{"ar", "دراجة حمراء للأطفال"},
	{"fa", "دوچرخهٔ قرمز برای کودکان"},
	{"ur", "بچوں کے لیے سرخ سائیکل"},
	{"he", "אופניים אדומים לילדים"},
	{"hi", "बच्चों के लिए लाल साइकिल"},
	{"bn", "শিশুদের জন্য লাল সাইকেল"},
	{"ta", "குழந்தைகளுக்கான சிவப்பு மிதிவண்டி"},
	{"te", "పిల్లల కోసం ఎరుపు సైకిల్"},
	{"gu", "બાળકો માટે લાલ સાયકલ"},
	{"mr", "मुलांसाठी लाल सायकल"},
	{"th", "จักรยานสีแดงสำหรับเด็ก"},
	{"km", "កង់ក្រហមសម្រាប់ក្មេង"},
	{"my", "ကလေးများအတွက် စက်ဘီးအနီ"},
	{"bo", "རྐང་འཁོར་དམར་པོ།"},
	{"en", "👩🏽‍🔧 repairs 🚲 — 100 % ✓"},
};

#define DEMO_ZH "将以下文本翻译为中文，注意只需要输出翻译后的结果，不要额外解释：\n\n"
#define DEMO_EN "将以下文本翻译为英语，注意只需要输出翻译后的结果，不要额外解释：\n\n"
#define DEMO_DE "Translate the following segment into German, without additional explanation.\n\n"

const HymtKnownAnswer hymt_known_answers[] = {
	{"HY-MT1.5-7B", NULL, HYMT_FAMILY_HY_MT15, 4096, 32,
		"将以下文本翻译成英语,注意只需要输出翻译后的结果,不要额外解释:\n\n今天天气真好。",
		"The weather is really nice today.", {NULL}},
	{"HY-MT1.5-7B", NULL, HYMT_FAMILY_HY_MT15, 4096, 32,
		"Translate the following segment into Chinese, without additional explanation.\n\nIt’s on the house.",
		NULL, {"免费", "请客", "不用付钱", "不要钱", NULL}},
	{"the demo", "hymt-demo", HYMT_FAMILY_HY_MT15, 256, 5, DEMO_ZH "Basketball Rims", "篮球架", {NULL}},
	{"the demo", "hymt-demo", HYMT_FAMILY_HY_MT15, 256, 5, DEMO_EN "11.5（强碱性）", "11.5 (strongly alkaline)", {NULL}},
	{"the demo", "hymt-demo", HYMT_FAMILY_HY_MT15, 256, 5, DEMO_DE "Indonesian Rupiah", "Indonesische Rupiah", {NULL}},
};

const int	hymt_known_answer_count = sizeof(hymt_known_answers) / sizeof(hymt_known_answers[0]);
