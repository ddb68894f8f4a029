// What others wrote reaches the page through this file: as text nodes, with nothing in it that hides or turns a line.

const SVG = "http://www.w3.org/2000/svg";

// Controls, format and bidi marks, private and unassigned characters, line and paragraph separators, and what is drawn as
// nothing: fillers, joiners, variation selectors, an empty Braille cell.
const UNSEEN = String.raw`[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]`;

// Those among them that writers need, and those that are drawn after all.
const ofScripts = (names) => `[${names.split(" ").map((name) => String.raw`\p{Script=${name}}`).join("")}]`;
const JOINED = ofScripts("Arab Syrc Deva Beng Guru Gujr Orya Taml Telu Knda Mlym Sinh Khmr Mymr Mong");
const SPACELESS = ofScripts("Thai Laoo Khmr Mymr");
const TAG = String.raw`[\u{e0030}-\u{e0039}\u{e0061}-\u{e007a}]`;
const NEEDED = [
  // Line breaks and tabs.
  String.raw`[\n\t]`,
  // The joiner within an emoji of several, the selector that makes one coloured or plain, the letters of a region's flag.
  String.raw`(?<=\p{Extended_Pictographic}[\ufe0f\u{1f3fb}-\u{1f3ff}]*)\u200d(?=\p{Extended_Pictographic})`,
  String.raw`(?<=\p{Extended_Pictographic}|[#*\d](?=\ufe0f\u20e3))[\ufe0e\ufe0f]`,
  String.raw`(?<=\u{1f3f4}${TAG}{0,5})${TAG}(?=${TAG}{0,5}\u{e007f})|(?<=\u{1f3f4}${TAG}{2,6})\u{e007f}`,
  // One joiner or non-joiner in a script that is spelt with them; where words have no spaces, what stands between them.
  String.raw`(?<=${JOINED}\p{M}*)[\u200c\u200d](?!\p{M}*[\u200c\u200d])`,
  String.raw`(?<=${SPACELESS})\u200b(?=${SPACELESS})`,
  // The selector of a variant of a Han or Mongolian character.
  String.raw`(?<=\p{Script=Han})[\ufe00-\ufe02\u{e0100}-\u{e01ef}]`,
  String.raw`(?<=\p{Script=Mong})[\u180b-\u180f]`,
  // Signs of Arabic, Syriac and Kaithi that enclose or stand over numbers.
  String.raw`[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}]`,
];
const HIDDEN = new RegExp(`(?=${UNSEEN})(?!${NEEDED.join("|")})[^]`, "gu");

const byId = (id) => document.getElementById(id);
const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) appendVisible(element, text);
  return element;
}

function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// As the command writes it on a terminal: \x1b, \u202e, \U000e0041.
function escapeOf(character) {
  const short = { "\r": "\\r", "\n": "\\n", "\t": "\\t" }[character];
  if (short) return short;
  const code = character.codePointAt(0);
  const digits = code.toString(16);
  if (code < 0x100) return "\\x" + digits.padStart(2, "0");
  return code < 0x10000 ? "\\u" + digits.padStart(4, "0") : "\\U" + digits.padStart(8, "0");
}

const visible = (text) => text.replace(HIDDEN, escapeOf);

// The text, with escapes in it, and with what the pattern finds in it marked. What is to be seen is judged by the whole text:
// a joiner between a mark and what follows it is within a word all the same.
function appendVisible(parent, text, pattern = null) {
  const hidden = [...text.matchAll(HIDDEN)];
  let end = 0;
  const upTo = (to, into) => {
    while (hidden.length && hidden[0].index < to) {
      const { index, 0: character } = hidden.shift();
      into.append(text.slice(end, index));
      into.append(make("span", "escape", escapeOf(character)));
      end = index + character.length;
    }
    into.append(text.slice(end, to));
    end = to;
  };
  for (const found of pattern ? text.matchAll(pattern) : []) {
    upTo(found.index, parent);
    upTo(found.index + found[0].length, parent.appendChild(make("mark")));
  }
  upTo(text.length, parent);
}

// "1234567" as "1,234,567": message numbers are text, for they may be greater than what a number holds.
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

function messagesOf(node) {
  return node.from === node.to ? `message ${grouped(node.from)}` : `messages ${grouped(node.from)} to ${grouped(node.to)}`;
}

function datesOf(node) {
  const [first, last] = [node.started, node.ended].map((moment) => moment && moment.slice(0, 16).replace("T", " "));
  if (!first && !last) return "unknown";
  if (!first || !last || first === last) return `${first || last} UTC`;
  return `${first} to ${first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last} UTC`;
}

const momentText = (moment) => moment.slice(0, 19).replace("T", " ") + " UTC";
