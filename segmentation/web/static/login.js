// Sends the token, and says where it is another one.
import { post } from "./api.js";

const form = document.querySelector("form");
form.onsubmit = async (event) => {
  event.preventDefault();
  try {
    await post("/login", { token: form.token.value });
    location.assign("/");
  } catch (error) {
    document.getElementById("message").textContent = error.message;
  }
};
