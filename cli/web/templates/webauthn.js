"use strict";
// The one script of the dashboard: it asks the browser for a passkey, and puts the answer into the form of the page.
const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decode = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
const MINUTES = 5 * 60 * 1000;

async function answer(form) {
  const given = form.dataset;
  const known = (given.credentials || "").split(" ").filter((id) => id);
  const found = await navigator.credentials.get({ publicKey: {
    challenge: decode(given.challenge), rpId: given.rp, userVerification: "required", timeout: MINUTES,
    allowCredentials: known.map((id) => ({ type: "public-key", id: decode(id) })),
  } });
  form.elements.credential_id.value = encode(found.rawId);
  form.elements.authenticator_data.value = encode(found.response.authenticatorData);
  form.elements.client_data.value = encode(found.response.clientDataJSON);
  form.elements.signature.value = encode(found.response.signature);
  form.submit();
}

async function create(form) {
  const given = form.dataset;
  const made = await navigator.credentials.create({ publicKey: {
    challenge: decode(given.challenge), rp: { id: given.rp, name: "almoner" }, timeout: MINUTES, attestation: "none",
    user: { id: decode(given.challenge), name: given.name, displayName: given.name }, // a new one: none is replaced
    pubKeyCredParams: [{ type: "public-key", alg: -7 }, { type: "public-key", alg: -8 }],
    authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
  } });
  const stated = { attestation: encode(made.response.attestationObject), client_data: encode(made.response.clientDataJSON) };
  const command = document.getElementById("command");
  command.value = "almoner passkey add " + encode(new TextEncoder().encode(JSON.stringify(stated)));
  document.getElementById("made").hidden = false;
  form.hidden = true;
  command.focus();
  command.select();
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const told = form.querySelector("[role=status]");
    told.textContent = "Your browser asks for your passkey.";
    try {
      await (form.dataset.passkey === "create" ? create(form) : answer(form));
    } catch (problem) {
      told.textContent = "No passkey answered (" + problem.name + "). Nothing was sent. Try again.";
    }
  });
}
