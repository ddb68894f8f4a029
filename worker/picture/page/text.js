// What others wrote reaches the page through this file: as text nodes, with nothing in it that hides or turns a line.

const SVG = "http://www.w3.org/2000/svg";

// Controls, format and bidi marks, private and unassigned characters, line and paragraph separators, and what is drawn as
// nothing: fillers, joiners, variation selectors, an empty Braille cell.
const UNSEEN = String.raw`[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]`;

// Those among them that writers need: line breaks and tabs; the joiner within an emoji of several, and the selector that
// makes one coloured or plain; joiners within words of scripts that are spelt with them; the selector of a variant of a
// Han or Mongolian character.
const JOINED = ["Arab", "Syrc", "Deva", "Beng", "Guru", "Gujr", "Orya", "Taml", "Telu", "Knda", "Mlym", "Sinh", "Khmr", "Mymr"]
  .map((script) => String.raw`\p{Script=${script}}`)
  .join("");
const NEEDED = [
  String.raw`[\n\t]`,
  String.raw`(?<=\p{Extended_Pictographic}[\ufe0f\u{1f3fb}-\u{1f3ff}]*)\u200d(?=\p{Extended_Pictographic})`,
  String.raw`(?<=\p{Extended_Pictographic}|[#*\d](?=\ufe0f\u20e3))[\ufe0e\ufe0f]`,
  String.raw`(?<=[${JOINED}])[\u200c\u200d](?=[${JOINED}])`,
  String.raw`(?<=\p{Script=Han})[\ufe00-\ufe02\u{e0100}-\u{e01ef}]`,
  String.raw`(?<=\p{Script=Mong})[\u180b-\u180d\u180f]`,
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

function appendVisible(parent, text) {
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parent.append(text.slice(end, match.index));
    const sign = make("span", "escape");
    sign.textContent = escapeOf(match[0]);
    parent.append(sign);
    end = match.index + match[0].length;
  }
  parent.append(text.slice(end));
}

// The text, with what the pattern finds in it marked.
function appendMarked(parent, text, pattern) {
  let end = 0;
  for (const match of pattern ? text.matchAll(pattern) : []) {
    appendVisible(parent, text.slice(end, match.index));
    parent.append(make("mark", "", match[0]));
    end = match.index + match[0].length;
  }
  appendVisible(parent, text.slice(end));
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
